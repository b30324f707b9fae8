"""From one format to another: `regroup` changes records, counts what is lost, and makes entries of them."""
