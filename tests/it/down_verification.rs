//! `down` reports that nothing is left only after it has checked: renamed hosts, lost directories or records, hosts that cannot be inspected.

use orchestrate::sandbox::Faults;

use crate::signals::is_alive;
use crate::support::{JobSpec, SandboxFixture, path_str, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_reports_hosts_it_could_not_inspect() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("unseen", &JobSpec::default()));
    fixture.set_faults("gpu02", &Faults { docker_down: true, ..Faults::default() });
    let down = laptop.run(&["down", path_str(&file)]).await;
    down.assert_exit_code(5)
        .assert_contains("could not list containers: the docker daemon on gpu02 does not respond")
        .assert_not_contains("no run, container or process of");
    fixture.set_faults("gpu02", &Faults::default());
    laptop
        .run(&["down", path_str(&file)])
        .await
        .assert_exit_code(0)
        .assert_contains("no run, container or process of `unseen` is on any host");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renamed_hosts_are_torn_down_with_logs() {
    for contained in [true, false] {
        let fixture = SandboxFixture::with_hosts(2).await;
        let (laptop, file) =
            (fixture.new_laptop("laptop"), fixture.write_inventory("renamed", &JobSpec { in_container: contained, ..JobSpec::default() }));
        laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
        let pids = fixture.wait_for_ranks(2).await;
        let text = std::fs::read_to_string(&file).expect("an inventory").replace("name: gpu0", "name: node");
        std::fs::write(&file, text).expect("written");
        let other = fixture.new_laptop("other");
        other
            .run(&["down", path_str(&file)])
            .await
            .assert_exit_code(0)
            .assert_contains("also under names that are not in the inventory: gpu01")
            .assert_contains("nothing is left");
        assert!(pids.iter().all(|pid| !is_alive(*pid)));
        assert!(String::from_utf8_lossy(&other.read_log("rank-1.log")).starts_with("rank 1 of 2 on gpu02"));
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bare_run_without_directory_is_found_by_process() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) =
        (fixture.new_laptop("laptop"), fixture.write_inventory("vanished", &JobSpec { in_container: false, ..JobSpec::default() }));
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    let pids = fixture.wait_for_ranks(2).await;
    for host in 0..2 {
        // The keeper may be writing into the directory.
        wait_until("it is gone", async || std::fs::remove_dir_all(fixture.host_home(host).join(".orchestrate")).ok()).await;
    }
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_current_run_note_blocks_nothing() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let job = JobSpec { top_level: "teardown: never\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("bad", &job));
    fixture.end_ranks(None, 0);
    laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0);
    for host in 0..2 {
        std::fs::write(fixture.private_dir("bad", host).join("current"), "../../x\n").expect("written");
    }
    let other = fixture.new_laptop("other");
    other
        .run(&["down", path_str(&file)])
        .await
        .assert_exit_code(0)
        .assert_contains("the note of the current run cannot be read")
        .assert_contains("nothing is left");
    for rank in 0..2 {
        let log = String::from_utf8_lossy(&other.read_log(&format!("rank-{rank}.log"))).into_owned();
        assert!(log.ends_with(&format!("rank {rank} ends with 0\n")), "{log}");
    }
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn container_of_killed_check_is_removed() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let job = JobSpec { top_level: "checks: { same: [\"sleep 3000\"] }\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("checked", &job));
    let check = laptop.start(&["check", path_str(&file)]);
    wait_until("the check container exists", async || fixture.containers(0).iter().any(|c| c.0.starts_with("orch-check-")).then_some(()))
        .await;
    check.send_signal("KILL");
    drop(check.wait_for_exit().await);
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    assert_eq!(fixture.containers(0), []);
    fixture.assert_clean_and_stop().await;
}
