"""State modules (PSoup section 4.2): the Query SteM, the Results Structure, and what of it is covered."""
