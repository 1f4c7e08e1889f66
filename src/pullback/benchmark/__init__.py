"""Speed and memory of an op and of what it competes with, measured side by side."""
