"""What autograd built, kept and computed, as data and as text, SVG and Mermaid."""
