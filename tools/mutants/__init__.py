"""`make mutants`: change single expressions of the rules, and list the changes that no test notices."""
