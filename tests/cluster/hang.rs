//! A torch job that hangs before init: who is waited for is named, and `stacks` yields something for every rank.

use crate::laptop::{Laptop, word};
use crate::support::{Cluster, Job};

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_rank_that_does_not_come_to_init_is_named_and_stacks_tell_of_all() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let mut job = Job::torch("late").command(&["/mnt/late.py"]);
    job.env.push_str("LATE: \"3\"\n");
    job.top = "on_failure: { hang_after: 8s }\n".to_owned();
    let file = cluster.inventory(&laptop, &job);
    let mut up = laptop.start(&["up", word(&file)]);
    up.says("HANG waiting for: rank 3 on gpu02");
    up.says("| rank 3 has not; it wrote last: rank 3 builds the model");
    let stacks = laptop.run(&["stacks", word(&file)]);
    println!("{}", stacks.said());
    // The image has no py-spy and no gdb, and a container may not read the kernel's stacks: what is left is said.
    stacks.code(0).says("---- rank").says("it runs: python3 -u /mnt/late.py").says("neither py-spy nor gdb here");
    let json = laptop.run(&["stacks", word(&file), "--json"]);
    let ranks: Vec<serde_json::Value> = json.code(0).out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(ranks.iter().map(|rank| rank["rank"].as_u64().expect("a number")).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for rank in &ranks {
        assert!(rank["command"].as_str().is_some_and(|command| command.contains("/mnt/late.py")), "{rank}");
        assert!(rank["stack"].as_array().is_some_and(|stack| !stack.is_empty()), "{rank}");
    }
    cluster.order(&["gpu01", "gpu02"], "late", "come", "1");
    up.says("it goes on");
    cluster.order(&["gpu01", "gpu02"], "late", "end", "1");
    up.end().code(0).recap("OK");
    cluster.as_before();
}
