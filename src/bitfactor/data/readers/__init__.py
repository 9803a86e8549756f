"""Files of data sets, read and checked without torch."""
