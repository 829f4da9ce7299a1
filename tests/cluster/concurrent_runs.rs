//! Two runs on the same hosts: ending one leaves the other alone.

use crate::laptop::{Laptop, path_str};
use crate::support::{Cluster, JobSpec};

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn tearing_down_one_run_keeps_the_other() {
    let cluster = Cluster::acquire();
    let laptops = [Laptop::new(), Laptop::new()];
    let mut jobs = [JobSpec::busybox("left"), JobSpec::busybox("right")];
    jobs[1].master_port = 29600;
    let files = [cluster.write_inventory(&laptops[0], &jobs[0]), cluster.write_inventory(&laptops[1], &jobs[1])];
    let mut ups = [laptops[0].start(&["up", path_str(&files[0])]), laptops[1].start(&["up", path_str(&files[1])])];
    for (up, laptop) in ups.iter_mut().zip(&laptops) {
        up.wait_until("both ranks are up", || {
            (0..2).all(|r| laptop.read_log_text(&format!("rank-{r}.log")).contains("is up")).then_some(())
        });
    }
    let other = Laptop::new();
    let file = cluster.write_inventory(&other, &jobs[0]);
    other.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
    let [left, mut right] = ups;
    assert_ne!(left.wait_for_exit().exit_code, Some(0), "a run that another operator ended is no success");
    assert!(right.is_running(), "the other run continues");
    for host in ["gpu01", "gpu02"] {
        assert_eq!(cluster.exec_on(host, "docker ps --format '{{.Names}}'").trim(), format!("orch-right-{host}"));
    }
    cluster.write_control_file(&["gpu01", "gpu02"], "right", "go", "0");
    right.wait_for_exit().assert_exit_code(0).assert_recap("OK").assert_contains("0 failed");
    for rank in 0..2 {
        assert!(!laptops[1].read_log_text(&format!("rank-{rank}.log")).contains("saw TERM"));
    }
}
