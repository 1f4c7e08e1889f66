"""One rule one file; the file defines the code, its documentation, its test data and its fix."""
