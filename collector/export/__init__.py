"""Export: runs as rows of a CSV or Parquet file, one column a figure, named as in the record and in InfluxDB."""
