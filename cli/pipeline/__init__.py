"""`weir pipeline`: run the jobs over usage records; a module per job."""
