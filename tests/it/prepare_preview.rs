//! What the program reports about tasks before they run: forecasts and differences of a dry run, and inventories of tasks alone.

use crate::prepare::{count_lines, job_with_tasks};
use crate::support::{SandboxFixture, path_str};

const TASKS: &str = r#"
  - { name: plain, run: "echo >>$BENCH/ran" }
  - { name: made, run: "echo >>$BENCH/ran; touch $BENCH/made.{{ host.name }}", creates: "$BENCH/made.{{ host.name }}" }
  - { name: needless, run: "echo >>$BENCH/ran", unless: "test -e $BENCH/ran" }
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_evaluates_conditions_and_names_what_changed() {
    for in_container in [true, false] {
        let fixture = SandboxFixture::with_hosts(2).await;
        let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("dry", &job_with_tasks(&fixture, in_container, TASKS)));
        let first = laptop.run(&["prepare", path_str(&file), "--dry-run"]).await;
        first.assert_exit_code(0).assert_contains("1  plain     gpu[01-02]  would run\n");
        let made = if in_container { "would run, unless the new container has what it makes" } else { "would run" };
        first.assert_contains(&format!("2  made      gpu[01-02]  {made}\n"));
        assert_eq!(count_lines(&fixture, "ran"), 0, "nothing ran");
        laptop.run(&["prepare", path_str(&file)]).await.assert_exit_code(0);
        std::fs::remove_file(fixture.control_dir().join("made.gpu02")).expect("removed");
        let ran = count_lines(&fixture, "ran");
        let second = laptop.run(&["prepare", path_str(&file), "--dry-run", "--diff"]).await;
        second
            .assert_exit_code(0)
            .assert_contains("2  made      gpu01       would be skipped: what it creates exists")
            .assert_contains("2  made      gpu02       would run")
            .assert_contains("3  needless  gpu[01-02]  would be skipped: `unless` succeeded")
            .assert_contains("changed in the inventory's tasks since they last ran\n  nothing");
        let text =
            std::fs::read_to_string(&file).expect("the inventory").replace("name: plain, run: \"echo", "name: plain, run: \"echo new");
        std::fs::write(&file, text).expect("written");
        let third = laptop.run(&["prepare", path_str(&file), "--dry-run", "--diff"]).await;
        third.assert_exit_code(0).assert_contains("prepare[1].run: \"echo >>").assert_contains("\" → \"echo new >>");
        assert_eq!(count_lines(&fixture, "ran"), ran, "nothing ran");
        laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inventory_without_a_launch_is_prepared_and_not_launched() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("alone", &job_with_tasks(&fixture, true, TASKS)));
    let text = std::fs::read_to_string(&file).expect("the inventory");
    let (head, rest) = text.split_once("\nlaunch:\n").expect("a launch");
    let tail = rest.find("\nteardown:").map(|at| &rest[at..]).expect("what follows it");
    std::fs::write(&file, format!("{head}{tail}")).expect("written");
    let file = path_str(&file);
    laptop
        .run(&["plan", file])
        .await
        .assert_exit_code(0)
        .assert_contains("the tasks of `prepare` alone")
        .assert_contains("plain, made, needless");
    laptop.run(&["check", file]).await.assert_not_contains("launch` is missing").assert_not_contains("29500");
    for command in ["up", "render"] {
        let refused = laptop.run(&[command, file]).await;
        refused.assert_exit_code(2).assert_contains("the inventory has no `launch`").assert_contains("alone.yaml` runs the tasks alone");
    }
    laptop.run(&["prepare", file]).await.assert_exit_code(0).assert_contains("tasks     changed 4");
    laptop.run(&["down", file]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_names_the_files_that_would_be_sent() {
    let tasks = r#"
  - { name: code, sync: { from: ./code, to: ~/code } }
  - { name: build, run: "cp ~/code/a.txt ~/built", creates: ~/built }
"#;
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("names", &job_with_tasks(&fixture, false, tasks)));
    let code = file.parent().expect("a folder").join("code");
    std::fs::create_dir(&code).expect("made");
    std::fs::write(code.join("a.txt"), "one\n").expect("written");
    std::fs::write(code.join("b.txt"), "two\n").expect("written");
    let dry_run = async |flags: &[&str]| laptop.run(&[&["prepare", path_str(&file), "--dry-run"], flags].concat()).await;
    let first = dry_run(&[]).await;
    first.assert_exit_code(0).assert_contains("    1  code   gpu[01-02]  would send 2 new, 8 B\n    2  build  gpu[01-02]  would run\n");
    first.assert_contains("no run exists: the tasks would run").assert_not_contains("a.txt");
    assert!(!fixture.host_home(0).join("code").exists(), "nothing was sent");
    laptop.run(&["prepare", path_str(&file)]).await.assert_exit_code(0);
    dry_run(&["--diff"]).await.assert_contains("    1  code   gpu[01-02]  nothing differs\n").assert_not_contains("can change the answer");
    std::fs::write(code.join("a.txt"), "changed\n").expect("written");
    std::fs::remove_file(fixture.host_home(1).join("code/b.txt")).expect("removed");
    let third = dry_run(&["--diff"]).await;
    third
        .assert_exit_code(0)
        .assert_contains("  1  code   gpu01       would send 1 changed, 8 B\n         ~ a.txt\n")
        .assert_contains("  1  code   gpu02       would send 1 new, 1 changed, 12 B\n         ~ a.txt\n         + b.txt\n")
        .assert_contains("`creates` and `unless` were evaluated now: earlier tasks can change the answer");
    assert_eq!(std::fs::read_to_string(fixture.host_home(0).join("code/a.txt")).expect("a file"), "one\n", "nothing was sent");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}
