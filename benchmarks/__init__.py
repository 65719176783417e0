"""ps_train and its peers side by side: the same training, each from its own small file.

    tools   peers  transfers  slow_link  scaling  accuracy  recovery       python -m benchmarks.TOOL --help
    peers   classic  parameter_server_strategy  multi_worker_mirrored  ddp  no_communication, and ps_train itself
    models  small_variables  large_dense                         plug-ins for transfers
    harness/ starts the tasks of a peer, records, measures, reports
"""
