"""What is shipped to run Weir with, and the pages that operators read."""
