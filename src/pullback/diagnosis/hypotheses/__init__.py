"""One file a hypothesis; a file whose name starts with an underscore is shared by several."""
