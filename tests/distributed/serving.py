"""The tasks of an asynchronous ParameterServerStrategy, of which the chief runs the script."""

import tensorflow as tf


def resolver_on_the_chief():
    """The cluster's resolver. A process that is another task serves, and does not return."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
            start=True,
        )
        server.join()
    return resolver
