"""An API server for labs and tests: the parts of a kube-apiserver that agents use, over real HTTP, with faults.

    server.py, embedded.py, __main__.py   the server: in an event loop, in a thread, as a process
    control.py                            what a test may do to it while it runs, over HTTP
    serving.py                            one request: who, faults, what, allowed?, answer
    watching.py, listing.py, discovery.py, tables.py, reviews.py   what reads answer
    execing.py                            commands in Pods, and their logs: a test brings the kubelets
    registry.py, deleting.py              what writes do: preconditions, generation, finalizers
    admission.py, services.py, schemas.py, decoding.py, patching.py, naming.py   what a write may say
    managing.py                           whose fields are whose: server-side apply
    rbac.py, clients.py, tls.py           who may do what; who is who
    faults.py, counters.py                what goes wrong for whom; what was asked
    state.py, exchanges.py, manifests.py, views.py   the parts wired; HTTP; YAML in; JSON and Tables out
    paths.py, resources.py, selectors.py, statuses.py, store.py   values, each alone

What it answers was compared, request by request, with a kube-apiserver 1.36, and tests/kube/test_apiserver.py runs
against both. It holds objects as JSON and revisions as etcd does, in memory. It runs no controllers: nothing is
collected, scheduled or counted, except that a namespace takes its objects along when it goes.

By default it is kinder than a real one only in what docs/lab-kubernetes.md lists.
"""
