"""What each kind of operator costs: one file per family, each rule's first line is its formula."""
