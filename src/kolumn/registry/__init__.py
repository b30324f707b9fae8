"""Where the schemas of a read are: the topic `_schemas` of the same cluster, files, a running registry."""
