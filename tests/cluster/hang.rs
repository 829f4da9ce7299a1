//! A torch job hangs before init: the program names the missing rank, and `stacks` reports something for every rank.

use crate::laptop::{Laptop, path_str};
use crate::support::{Cluster, JobSpec};

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn late_rank_is_named_and_stacks_cover_all_ranks() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let mut job = JobSpec::torch("late").with_command(&["/mnt/late.py"]);
    job.env.push_str("LATE: \"3\"\n");
    job.top_level = "on_failure: { hang_after: 8s }\n".to_owned();
    let file = cluster.write_inventory(&laptop, &job);
    let mut up = laptop.start(&["up", path_str(&file)]);
    up.wait_for_output("HANG waiting for: rank 3 on gpu02");
    up.wait_for_output("| rank 3 has not; it wrote last: rank 3 builds the model");
    let stacks = laptop.run(&["stacks", path_str(&file)]);
    println!("{}", stacks.transcript());
    // The image has neither py-spy nor gdb, and a container may not read kernel stacks: `stacks` reports what remains.
    stacks
        .assert_exit_code(0)
        .assert_contains("---- rank")
        .assert_contains("command of rank 0: python3 -u /mnt/late.py")
        .assert_contains("neither py-spy nor gdb here");
    let json = laptop.run(&["stacks", path_str(&file), "--json"]);
    let ranks: Vec<serde_json::Value> =
        json.assert_exit_code(0).stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(ranks.iter().map(|rank| rank["rank"].as_u64().expect("a number")).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for rank in &ranks {
        assert!(rank["command"].as_str().is_some_and(|command| command.contains("/mnt/late.py")), "{rank}");
        assert!(rank["stack"].as_array().is_some_and(|stack| !stack.is_empty()), "{rank}");
    }
    cluster.write_control_file(&["gpu01", "gpu02"], "late", "come", "1");
    up.wait_for_output("the run is making progress again");
    cluster.write_control_file(&["gpu01", "gpu02"], "late", "end", "1");
    up.wait_for_exit().assert_exit_code(0).assert_recap("OK");
}
