"""Workers: processes that move bytes for clients of any broker, under one supervisor process.

The supervisor has the configuration, the quota store, the broker map, the listening sockets and the admin
endpoint. It gives each worker a copy of the sockets once. So workers accept connections, and clients wait in
the kernel's queue while no worker runs. Workers tell each other, through the supervisor, what their clients
have used and which connections they have opened, within 20 ms.

`pool` and `handle` are the supervisor's side, `worker` and `charges_sender` the worker's;
`link` carries the `messages`. `questions` asks all workers for lists that the admin endpoint or the log
needs.

Workers are new processes of the interpreter, not forks: the supervisor has threads when it replaces a worker,
and a fork would keep their locks.
"""
