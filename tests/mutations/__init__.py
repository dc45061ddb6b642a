"""Creating, growing and deleting topics, as a broker's own mutation quota and as Weir's sees it (KIP-599).

`requests.py` builds the three requests and reads their answers, `client.py` sends them over plain sockets.
"""
