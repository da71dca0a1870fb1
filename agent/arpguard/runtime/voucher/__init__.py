"""The voucher's process: apart from the agent, so that nothing the agent does can delay a grant (docs/vouching.md).

`loop` is all that it does: it drives `core/vouching/voucher` with sockets and the clock. It and the agent exchange
`messages`.
"""
