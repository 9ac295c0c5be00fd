"""Where DuckDB's upper and lower differ from Spark's (ICU's full mappings), character by character.

Found by comparing both engines over all of Unicode, and proven by `tests/conformance/test_dense.py`. Spark maps some
characters to several, knows newer scripts, and writes a capital sigma that ends a word as a final one.
"""

from __future__ import annotations

UPPER_FROM = (
    "\u019b\u0264\u1c8a\ua7cd\ua7cf\ua7d3\ua7d5\ua7db\U00010d70\U00010d71\U00010d72\U00010d73\U00010d74"
    "\U00010d75\U00010d76\U00010d77\U00010d78\U00010d79\U00010d7a\U00010d7b\U00010d7c\U00010d7d\U00010d7e"
    "\U00010d7f\U00010d80\U00010d81\U00010d82\U00010d83\U00010d84\U00010d85\U00016ebb\U00016ebc\U00016ebd"
    "\U00016ebe\U00016ebf\U00016ec0\U00016ec1\U00016ec2\U00016ec3\U00016ec4\U00016ec5\U00016ec6\U00016ec7"
    "\U00016ec8\U00016ec9\U00016eca\U00016ecb\U00016ecc\U00016ecd\U00016ece\U00016ecf\U00016ed0\U00016ed1"
    "\U00016ed2\U00016ed3"
)
UPPER_TO = (
    "\ua7dc\ua7cb\u1c89\ua7cc\ua7ce\ua7d2\ua7d4\ua7da\U00010d50\U00010d51\U00010d52\U00010d53\U00010d54"
    "\U00010d55\U00010d56\U00010d57\U00010d58\U00010d59\U00010d5a\U00010d5b\U00010d5c\U00010d5d\U00010d5e"
    "\U00010d5f\U00010d60\U00010d61\U00010d62\U00010d63\U00010d64\U00010d65\U00016ea0\U00016ea1\U00016ea2"
    "\U00016ea3\U00016ea4\U00016ea5\U00016ea6\U00016ea7\U00016ea8\U00016ea9\U00016eaa\U00016eab\U00016eac"
    "\U00016ead\U00016eae\U00016eaf\U00016eb0\U00016eb1\U00016eb2\U00016eb3\U00016eb4\U00016eb5\U00016eb6"
    "\U00016eb7\U00016eb8"
)
"""Characters that become one other character."""

UPPER_SPLIT = (
    "\u00dfSS \u0149\u02bcN \u01f0J\u030c \u0390\u0399\u0308\u0301 \u03b0\u03a5\u0308\u0301 \u0587\u0535"
    "\u0552 \u1e96H\u0331 \u1e97T\u0308 \u1e98W\u030a \u1e99Y\u030a \u1e9aA\u02be \u1f50\u03a5\u0313 "
    "\u1f52\u03a5\u0313\u0300 \u1f54\u03a5\u0313\u0301 \u1f56\u03a5\u0313\u0342 \u1f80\u1f08\u0399 \u1f81"
    "\u1f09\u0399 \u1f82\u1f0a\u0399 \u1f83\u1f0b\u0399 \u1f84\u1f0c\u0399 \u1f85\u1f0d\u0399 \u1f86"
    "\u1f0e\u0399 \u1f87\u1f0f\u0399 \u1f88\u1f08\u0399 \u1f89\u1f09\u0399 \u1f8a\u1f0a\u0399 \u1f8b"
    "\u1f0b\u0399 \u1f8c\u1f0c\u0399 \u1f8d\u1f0d\u0399 \u1f8e\u1f0e\u0399 \u1f8f\u1f0f\u0399 \u1f90"
    "\u1f28\u0399 \u1f91\u1f29\u0399 \u1f92\u1f2a\u0399 \u1f93\u1f2b\u0399 \u1f94\u1f2c\u0399 \u1f95"
    "\u1f2d\u0399 \u1f96\u1f2e\u0399 \u1f97\u1f2f\u0399 \u1f98\u1f28\u0399 \u1f99\u1f29\u0399 \u1f9a"
    "\u1f2a\u0399 \u1f9b\u1f2b\u0399 \u1f9c\u1f2c\u0399 \u1f9d\u1f2d\u0399 \u1f9e\u1f2e\u0399 \u1f9f"
    "\u1f2f\u0399 \u1fa0\u1f68\u0399 \u1fa1\u1f69\u0399 \u1fa2\u1f6a\u0399 \u1fa3\u1f6b\u0399 \u1fa4"
    "\u1f6c\u0399 \u1fa5\u1f6d\u0399 \u1fa6\u1f6e\u0399 \u1fa7\u1f6f\u0399 \u1fa8\u1f68\u0399 \u1fa9"
    "\u1f69\u0399 \u1faa\u1f6a\u0399 \u1fab\u1f6b\u0399 \u1fac\u1f6c\u0399 \u1fad\u1f6d\u0399 \u1fae"
    "\u1f6e\u0399 \u1faf\u1f6f\u0399 \u1fb2\u1fba\u0399 \u1fb3\u0391\u0399 \u1fb4\u0386\u0399 \u1fb6"
    "\u0391\u0342 \u1fb7\u0391\u0342\u0399 \u1fbc\u0391\u0399 \u1fc2\u1fca\u0399 \u1fc3\u0397\u0399 "
    "\u1fc4\u0389\u0399 \u1fc6\u0397\u0342 \u1fc7\u0397\u0342\u0399 \u1fcc\u0397\u0399 \u1fd2\u0399\u0308"
    "\u0300 \u1fd3\u0399\u0308\u0301 \u1fd6\u0399\u0342 \u1fd7\u0399\u0308\u0342 \u1fe2\u03a5\u0308\u0300"
    " \u1fe3\u03a5\u0308\u0301 \u1fe4\u03a1\u0313 \u1fe6\u03a5\u0342 \u1fe7\u03a5\u0308\u0342 \u1ff2"
    "\u1ffa\u0399 \u1ff3\u03a9\u0399 \u1ff4\u038f\u0399 \u1ff6\u03a9\u0342 \u1ff7\u03a9\u0342\u0399 "
    "\u1ffc\u03a9\u0399 \ufb00FF \ufb01FI \ufb02FL \ufb03FFI \ufb04FFL \ufb05ST \ufb06ST \ufb13\u0544"
    "\u0546 \ufb14\u0544\u0535 \ufb15\u0544\u053b \ufb16\u054e\u0546 \ufb17\u0544\u053d"
)
"""Words: a character, and the several that it becomes."""

LOWER_FROM = (
    "\u1c89\ua7cb\ua7cc\ua7ce\ua7d2\ua7d4\ua7da\ua7dc\U00010d50\U00010d51\U00010d52\U00010d53\U00010d54"
    "\U00010d55\U00010d56\U00010d57\U00010d58\U00010d59\U00010d5a\U00010d5b\U00010d5c\U00010d5d\U00010d5e"
    "\U00010d5f\U00010d60\U00010d61\U00010d62\U00010d63\U00010d64\U00010d65\U00016ea0\U00016ea1\U00016ea2"
    "\U00016ea3\U00016ea4\U00016ea5\U00016ea6\U00016ea7\U00016ea8\U00016ea9\U00016eaa\U00016eab\U00016eac"
    "\U00016ead\U00016eae\U00016eaf\U00016eb0\U00016eb1\U00016eb2\U00016eb3\U00016eb4\U00016eb5\U00016eb6"
    "\U00016eb7\U00016eb8"
)
LOWER_TO = (
    "\u1c8a\u0264\ua7cd\ua7cf\ua7d3\ua7d5\ua7db\u019b\U00010d70\U00010d71\U00010d72\U00010d73\U00010d74"
    "\U00010d75\U00010d76\U00010d77\U00010d78\U00010d79\U00010d7a\U00010d7b\U00010d7c\U00010d7d\U00010d7e"
    "\U00010d7f\U00010d80\U00010d81\U00010d82\U00010d83\U00010d84\U00010d85\U00016ebb\U00016ebc\U00016ebd"
    "\U00016ebe\U00016ebf\U00016ec0\U00016ec1\U00016ec2\U00016ec3\U00016ec4\U00016ec5\U00016ec6\U00016ec7"
    "\U00016ec8\U00016ec9\U00016eca\U00016ecb\U00016ecc\U00016ecd\U00016ece\U00016ecf\U00016ed0\U00016ed1"
    "\U00016ed2\U00016ed3"
)
LOWER_SPLIT = ("\u0130", "i\u0307")

CASED = (
    r"\p{Lu}\p{Ll}\p{Lt}\x{AA}\x{BA}\x{1C89}-\x{1C8A}\x{2160}-\x{217F}\x{24B6}-\x{24E9}\x{A7CB}-\x{A7CF}"
    r"\x{A7D2}\x{A7D4}\x{A7DA}-\x{A7DC}\x{10D50}-\x{10D65}\x{10D70}-\x{10D85}\x{16EA0}-\x{16EB8}"
    r"\x{16EBB}-\x{16ED3}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}"
)
"""Letters with case, as a class of RE2: DuckDB's own classes lack those listed."""

IGNORABLE = (
    r"\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}\x{27}\x{2E}\x{3A}\x{B7}\x{387}\x{55F}\x{5F4}\x{897}\x{1ACF}-\x{1ADD}"
    r"\x{1AE0}-\x{1AEB}\x{2018}-\x{2019}\x{2024}\x{2027}\x{A7F1}\x{FE13}\x{FE52}\x{FE55}\x{FF07}\x{FF0E}"
    r"\x{FF1A}\x{10D4E}\x{10D69}-\x{10D6D}\x{10D6F}\x{10EC5}\x{10EFA}-\x{10EFC}\x{113BB}-\x{113C0}"
    r"\x{113CE}\x{113D0}\x{113D2}\x{113E1}-\x{113E2}\x{11B60}\x{11B62}-\x{11B64}\x{11B66}\x{11DD9}"
    r"\x{11F5A}\x{1611E}-\x{16129}\x{1612D}-\x{1612F}\x{16D40}-\x{16D42}\x{16D6B}-\x{16D6C}"
    r"\x{16FF2}-\x{16FF3}\x{1E5EE}-\x{1E5EF}\x{1E6E3}\x{1E6E6}\x{1E6EE}-\x{1E6EF}\x{1E6F5}\x{1E6FF}"
)
"""Characters that are looked through for the end of a word."""

NEITHER = "\u0295\U0001171e"
"""Characters that DuckDB's classes have and Spark's have not."""
