"""`weir quotas`: show, explain, change and import quotas; a module per command."""
