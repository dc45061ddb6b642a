"""Take-over: a new Weir gets the listening sockets of a running one, which then drains and ends.

Both processes share the sockets, so clients that wait in their queues are served by the new Weir. With
SO_REUSEPORT instead, each process would have a queue of its own, and Linux would reset the clients in the
queue of the process that ends.

    new Weir (`taker`)                               running Weir (`giver`)
    connects to takeover_socket, Hello          ->
                                                <-   Sockets (descriptors), Brokers, Sent
    opens its listeners from these sockets
    Ready                                       ->   stops accepting
                                                <-   Usage (units that clients have used), Paused
    records that usage
    Take                                        ->   stops as after SIGTERM: closes its copies, drains
                                                <-   Yours
    accepts connections

- If the new Weir ends before Take, or is silent for `PATIENCE_S`, the running one continues to serve. It says
  Kept, and the new Weir ends then, so that two never serve the same listeners.
- If the running Weir ends before Yours without a word, the sockets are the new Weir's.
- Only processes of the same user, or root, may take over or hand over (SO_PEERCRED): passed sockets receive
  the passwords of clients, and passed addresses of brokers decide where these passwords go.
- The socket is SOCK_SEQPACKET: a packet is a message, with its descriptors. Messages are JSON.
"""
