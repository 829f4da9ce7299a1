//! Two runs on the same hosts: what ends one does not touch the other.

use crate::laptop::{Laptop, word};
use crate::support::{Cluster, Job};

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn of_two_runs_side_by_side_one_is_torn_down_and_the_other_finishes() {
    let cluster = Cluster::take();
    let laptops = [Laptop::new(), Laptop::new()];
    let mut jobs = [Job::quick("left"), Job::quick("right")];
    jobs[1].port = 29600;
    let files = [cluster.inventory(&laptops[0], &jobs[0]), cluster.inventory(&laptops[1], &jobs[1])];
    let mut ups = [laptops[0].start(&["up", word(&files[0])]), laptops[1].start(&["up", word(&files[1])])];
    for (up, laptop) in ups.iter_mut().zip(&laptops) {
        up.until("both ranks are up", || (0..2).all(|r| laptop.text(&format!("rank-{r}.log")).contains("is up")).then_some(()));
    }
    let other = Laptop::new();
    let file = cluster.inventory(&other, &jobs[0]);
    other.run(&["down", "--yes", word(&file)]).code(0);
    let [left, mut right] = ups;
    assert_ne!(left.end().code, Some(0), "a run that another operator ended is no success");
    assert!(right.runs(), "the other run goes on");
    for host in ["gpu01", "gpu02"] {
        assert_eq!(cluster.on(host, "docker ps --format '{{.Names}}'").trim(), format!("orch-right-{host}"));
    }
    cluster.order(&["gpu01", "gpu02"], "right", "go", "0");
    right.end().code(0).recap("OK").says("0 failed");
    for rank in 0..2 {
        assert!(!laptops[1].text(&format!("rank-{rank}.log")).contains("saw TERM"));
    }
    cluster.as_before();
}
