//! Tasks of `prepare` that run on the host beside a container: `in: host`, `become: sudo`.

use orchestrate::sandbox::Faults;

use crate::prepare::{job_with_tasks, task_log};
use crate::support::{SandboxFixture, path_str};

/// They run outside of the container, in list order, and pass their values on; a second run changes nothing. No file of theirs is where the
/// container can write, and nothing is left after `down`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_tasks_run_beside_the_container() {
    let tasks = r#"
  - { name: build, in: host, run: "echo built; echo \"${SANDBOX_CONTAINER:+box}\" >>$BENCH/{{ host.name }}.place; touch $BENCH/built.{{ host.name }}", creates: "$BENCH/built.{{ host.name }}" }
  - { name: install, run: "echo ${SANDBOX_CONTAINER:+in the box} $(cat $BENCH/{{ host.name }}.place)", changed: never }
  - { name: value, in: host, hosts: master, run: "echo of ${SANDBOX_CONTAINER:-the host}", register: VALUE }
  - { name: with value, in: host, run: "echo \"<$VALUE> $ORCH_HOST\"", changed: never }
"#;
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("beside", &job_with_tasks(&fixture, true, tasks)));
    let dry = laptop.run(&["prepare", path_str(&file), "--dry-run"]).await;
    dry.assert_exit_code(0).assert_contains("build       gpu[01-02]  would run");
    let first = laptop.run(&["prepare", path_str(&file), "--progress", "plain"]).await;
    first.assert_exit_code(0).assert_contains("build: changed gpu[01-02]").assert_contains("tasks     changed 2  ok 5");
    assert_eq!(laptop.read_log(&task_log("gpu02", 1)), b"built\n");
    assert_eq!(laptop.read_log(&task_log("gpu02", 2)), b"in the box\n");
    assert_eq!(laptop.read_log(&task_log("gpu02", 4)), b"<of the host> gpu02\n");
    let dirs = fixture.host_home(1).join(".orchestrate/beside");
    let names = |dir: &str| -> Vec<String> {
        let entries = std::fs::read_dir(dirs.join(dir)).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    };
    assert!(names("gpu02.private/host.out").iter().any(|name| name.ends_with(".task-1.log")));
    assert!(!names("gpu02.out").iter().any(|name| name.contains(".task-1.") || name.contains(".task-4.")));
    let dry = laptop.run(&["prepare", path_str(&file), "--dry-run"]).await;
    dry.assert_exit_code(0).assert_contains("build       gpu[01-02]  would be skipped: what it creates exists");
    let up = laptop.run(&["up", path_str(&file), "--progress", "plain"]).await;
    up.assert_exit_code(0).assert_contains("build: skipped gpu[01-02]").assert_contains("tasks     changed 0  ok 5  skipped 2");
    let rank = laptop.run_dirs().last().expect("a run").join("logs/rank-1.log");
    assert_eq!(std::fs::read_to_string(rank).expect("its log"), "rank 1 got <of the host>\n");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    assert!(!dirs.join("gpu02.private/host.in").exists());
    fixture.assert_clean_and_stop().await;
}

/// Scripts and conditions run through sudo with the task's variables and the secrets; a refusal by sudo is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sudo_runs_tasks_as_root() {
    let tasks = r#"
  - { name: as root, in: host, become: sudo, env: { X: "it's" }, chdir: $BENCH, creates: made, run: "echo ${SANDBOX_SUDO-no} \"$X\" $TOKEN $PWD; touch made" }
  - { name: unless, in: host, become: sudo, run: "false", unless: "test \"$SANDBOX_SUDO\" = 1" }
  - { name: not, in: host, run: "echo ${SANDBOX_SUDO-no} $TOKEN", changed: never }
"#;
    for in_container in [true, false] {
        let fixture = SandboxFixture::with_hosts(1).await;
        let job = job_with_tasks(&fixture, in_container, &if in_container { tasks.to_owned() } else { tasks.replace("in: host, ", "") });
        let file =
            fixture.write_inventory("root", &crate::support::JobSpec { top_level: format!("secrets: [TOKEN]\n{}", job.top_level), ..job });
        let mut laptop = fixture.new_laptop("laptop");
        laptop.env_vars.insert("TOKEN".to_owned(), "s3cret-value".to_owned());
        let first = laptop.run(&["prepare", path_str(&file), "--progress", "plain"]).await;
        first
            .assert_exit_code(0)
            .assert_contains("as root: changed")
            .assert_contains("unless: skipped gpu01: `unless` succeeded")
            .assert_contains("not: ok");
        let root = String::from_utf8(laptop.read_log(&task_log("gpu01", 1))).expect("text");
        assert!(root.starts_with("1 it's s3cret-value ") && root.trim_end().ends_with("/bench"), "{root}");
        assert_eq!(laptop.read_log(&task_log("gpu01", 3)), b"no s3cret-value\n");
        let dry = laptop.run(&["prepare", path_str(&file), "--dry-run"]).await;
        dry.assert_exit_code(0).assert_contains("as root  gpu01  would be skipped: what it creates exists");
        dry.assert_contains("unless   gpu01  would be skipped: `unless` succeeded");
        std::fs::remove_file(fixture.control_dir().join("made")).expect("removed");
        fixture.set_faults("gpu01", &Faults { sudo_refused: true, ..Faults::default() });
        let refused = laptop.run(&["prepare", path_str(&file), "--progress", "plain"]).await;
        refused.assert_exit_code(1).assert_contains("sudo: a password is required").assert_contains("allow it in sudoers with NOPASSWD");
        fixture.set_faults("gpu01", &Faults::default());
        laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
        fixture.assert_clean_and_stop().await;
    }
}
