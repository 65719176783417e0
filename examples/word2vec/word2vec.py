"""Skip-grams with negative sampling on a cluster of parameter servers, as one wrote it for TensorFlow 1."""

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated host:port of the parameter servers")
flags.DEFINE_string("worker_hosts", "", "Comma-separated host:port of the workers")
flags.DEFINE_string("job_name", "", "ps or worker")
flags.DEFINE_integer("task_index", 0, "Index of the task in its job")
flags.DEFINE_integer("train_steps", 1500, "Global step at which training ends")
flags.DEFINE_integer("batch_size", 256, "Pairs of words in a step")
flags.DEFINE_integer("embedding_size", 16, "Length of a word's vector")
flags.DEFINE_string("train_dir", "", "Folder for checkpoints")
FLAGS = flags.FLAGS

SUBJECTS = ["sea", "kitchen", "forest", "city", "music", "school"]
WORDS = ["%s-%d" % (subject, i) for subject in SUBJECTS for i in range(20)]


def pairs(rng, count):
    """Returns words and words that stand near them, int32 [count] and [count, 1]."""
    subjects = rng.randint(len(SUBJECTS), size=count)
    near = rng.randint(20, size=(2, count)) + 20 * subjects
    is_noise = rng.rand(count) < 0.2
    return near[0], np.where(is_noise, rng.randint(len(WORDS), size=count), near[1])[:, None]


def build(words, near):
    """Returns the loss of a batch and the words' vectors, scaled to length 1."""
    embeddings = tf.get_variable("embeddings", [len(WORDS), FLAGS.embedding_size],
                                 initializer=tf.random_uniform_initializer(-1.0, 1.0),
                                 partitioner=tf.fixed_size_partitioner(2))
    weights = tf.get_variable("nce_weights", [len(WORDS), FLAGS.embedding_size],
                              initializer=tf.truncated_normal_initializer(stddev=FLAGS.embedding_size ** -0.5))
    biases = tf.get_variable("nce_biases", [len(WORDS)], initializer=tf.zeros_initializer())
    looked_up = tf.nn.embedding_lookup(embeddings, words, partition_strategy="div")
    loss = tf.reduce_mean(tf.nn.nce_loss(weights, biases, near, looked_up, num_sampled=16, num_classes=len(WORDS)))
    return loss, tf.nn.l2_normalize(tf.convert_to_tensor(embeddings), dim=1)


def main(_):
    """Runs one task."""
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    is_chief = FLAGS.task_index == 0
    rng = np.random.RandomState(FLAGS.task_index)
    with tf.device(tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
        words = tf.placeholder(tf.int32, [None])
        near = tf.placeholder(tf.int32, [None, 1])
        loss, vectors = build(words, near)
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdagradOptimizer(0.5).minimize(loss, global_step=global_step)
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.train_steps)]
    with tf.train.MonitoredTrainingSession(master=server.target, is_chief=is_chief, hooks=hooks,
                                           checkpoint_dir=FLAGS.train_dir or None) as session:
        trained = None
        while not session.should_stop():
            batch = pairs(rng, FLAGS.batch_size)
            _, value, step, trained = session.run(
                [train_op, loss, global_step, vectors], {words: batch[0], near: batch[1]})
            if step % 500 == 0:
                print("step %d: loss %.3f" % (step, value))
    if is_chief:
        for word in range(0, len(WORDS), 20):
            nearest = np.argsort(-trained.dot(trained[word]))[1:6]
            print("%s: %s" % (WORDS[word], ", ".join(WORDS[i] for i in nearest)))


if __name__ == "__main__":
    tf.app.run()
