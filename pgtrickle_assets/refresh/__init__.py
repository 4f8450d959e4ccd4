"""One refresh, from the window of its inputs to the delivery of its result."""
