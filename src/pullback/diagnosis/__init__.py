"""Why is a gradient wrong? Hypotheses fitted on what was got and expected, then tested on fresh inputs."""
