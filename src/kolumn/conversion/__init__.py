"""From one format to another: `losses` says what can't come along, `retarget` changes records, `regroup` makes entries of them."""
