"""The voucher's process, apart from the agent, so that the agent delays no grant (docs/vouching-process.md).

`__main__` is what is started, by `process.VoucherProcess` in the agent; the two exchange `messages`. `loop` is all that
it does: it drives `core/vouching/voucher` with sockets and the clock.
"""
