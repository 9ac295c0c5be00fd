"""The options that a source of each format may have: those of Spark's readers, version 4.3, and of our own.

A name that nobody knows would be ignored in silence. Names are compared without case.
"""

from __future__ import annotations


def _names(*texts: str) -> tuple[str, ...]:
    return tuple(name for text in texts for name in text.split())


_FILES = """
    path basePath pathGlobFilter recursiveFileLookup modifiedBefore modifiedAfter ignoreCorruptFiles ignoreMissingFiles
    ignoredPathSegmentRegex archivePathFilter maxFilesPerTrigger maxBytesPerTrigger maxFileAge maxCachedFiles
    discardCachedInputRatio latestFirst fileNameOnly cleanSource sourceArchiveDir
"""
_TEXTS = """
    charset columnNameOfCorruptRecord compression dateFormat enableDateTimeParsingFallback encoding lineSep locale mode
    multiLine samplingRatio singleVariantColumn timeFormat timeZone timestampFormat timestampNTZFormat
"""
_JSON = """
    allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros allowSingleQuotes
    allowUnquotedControlChars allowUnquotedFieldNames dropFieldIfAllNull explodeEmbeddedArray ignoreNullFields
    inferTimestamp maxNestingDepth maxNumLen maxStringLen prefersDecimal pretty primitivesAsString sortKeys useUnsafeRow
    writeNonAsciiCharacterAsCodePoint
"""
_CSV = """
    charToEscapeQuoteEscaping codec columnPruning comment delimiter emptyValue enforceSchema escape escapeQuotes
    extension header ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace inferSchema inputBufferSize maxCharsPerColumn
    maxColumns nanValue negativeInf nullValue positiveInf preferDate quote quoteAll sep unescapedQuoteHandling
"""
_KAFKA = """
    kafka.bootstrap.servers assign subscribe subscribePattern startingOffsets startingOffsetsByTimestamp
    startingOffsetsByTimestampStrategy startingTimestamp failOnDataLoss fetchOffset.numRetries
    fetchOffset.retryIntervalMs groupIdPrefix includeHeaders kafkaConsumer.pollTimeoutMs maxOffsetsPerTrigger
    maxRecordsPerPartition maxTriggerDelay minOffsetsPerTrigger minPartitions
"""

PARQUET_OPTIONS = _names(_FILES, "compression datetimeRebaseMode int96RebaseMode mergeSchema")
JSON_OPTIONS = _names(_FILES, _TEXTS, _JSON)
CSV_OPTIONS = _names(_FILES, _TEXTS, _CSV)
SOCKET_OPTIONS = ("host", "port", "includeTimestamp", "numPartitions")
RATE_OPTIONS = ("rowsPerSecond", "rampUpTime", "numPartitions")
KAFKA_OPTIONS = _names(_KAFKA)
MQTT_OPTIONS = ("host", "port", "topic", "qos", "client_id", "username", "password", "tls", "certificate")
