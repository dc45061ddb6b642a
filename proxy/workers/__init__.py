"""Workers: processes that move bytes for clients of any broker, under one supervisor process.

There is always a supervisor, also of one worker. So there is one implementation; the page, scrapes and a
large quota table delay no request; and a worker that is stuck or dies is replaced. Beside one process (three
pairs, 2026-11-28) it costs 20 MB of memory (79 instead of 59) and 0.3 % of a core while idle. The start (1.8
to 2.4 s beside 1.7 to 2.2), a new connection with a request (1.29 to 1.53 ms of CPU beside 1.36 to 1.54), and
a request (80 to 105 µs beside 78 to 94) are the same within noise.

The supervisor has the configuration, the quota store, the broker map, the listening sockets and the admin
endpoint. It gives each worker a copy of the sockets once. So workers accept connections, and clients wait in
the kernel's queue while no worker runs. Workers tell each other, through the supervisor, what their clients
have used and which connections they have opened, within 20 ms.

`pool` and `handle` are the supervisor's side, `worker` and `charges_sender` the worker's; `link` carries the
`messages`. `questions` asks all workers for lists that the admin endpoint or the log needs, and
`supervisor_questions` has a worker's questions. `local` runs a worker in the supervisor's process, over the
same link.

Workers are new processes of the interpreter, not forks: the supervisor has threads when it replaces a worker,
and a fork would keep their locks. Forks of a process without threads, made before the start, were tried: they
began 0.1 s sooner, but used more memory (106 instead of 100 MB in all): counting references copies the pages.
"""
