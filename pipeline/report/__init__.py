"""Report: what the tables say, as one HTML page that needs no network.

Labels of charts and the page's text are escaped by construction (`html`), because clients choose names.
"""
