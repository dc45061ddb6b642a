"""Workers: processes that move bytes, each for the clients of some brokers, under one supervisor process.

The supervisor has the configuration, the quota store, the broker map, the listeners and the admin endpoint.
It accepts connections, so that limits of connections are exact, and passes each socket to the worker that
owns the target broker. A broker belongs to one worker, and Kafka's quotas are per broker, so budgets stay
local.

`pool`, `handle` and `former_usage` are the supervisor's side, `worker` and `charges_sender` the worker's;
`link` carries the `messages`. `questions` asks all workers for lists that the admin endpoint or the log
needs.

Workers are new processes of the interpreter, not forks: the supervisor has threads when it replaces a worker,
and a fork would keep their locks.
"""
