"""From one format to another: `losses` lists what is lost, `retarget` changes records, `regroup` makes entries of them."""
