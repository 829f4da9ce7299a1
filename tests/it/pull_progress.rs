//! Progress of a pull: the program reports layers, and no other output of docker.

use std::collections::BTreeMap;
use std::path::PathBuf;

use orchestrate::event::{EventKind, LayerCounts, Phase};
use orchestrate::sandbox::Faults;

use crate::support::{JobSpec, Laptop, SandboxFixture, path_str, sha256_hex};
use crate::tui::open_terminal;

const IMAGE: &str = "slow/image:1";
const SCENARIO: &str = "{hosts: 2, gpus: 2, registry: ['slow/image:1'], image_details: {'slow/image:1': {layers: 5}}}";

/// Hosts that pull for twelve seconds, and whose ranks end at once.
async fn start_slow_registry(name: &str) -> (SandboxFixture, Laptop, PathBuf) {
    let fixture = SandboxFixture::start(SCENARIO).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory(name, &JobSpec::default()));
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &Faults { pull_delay: 12.0, ..Faults::default() });
    }
    fixture.end_ranks(None, 0);
    (fixture, laptop, file)
}

/// The reports of each host in order, and the notes of their steps.
fn pull_reports(kinds: &[EventKind]) -> (BTreeMap<u32, Vec<LayerCounts>>, BTreeMap<u32, String>) {
    let plan = kinds.iter().filter_map(|kind| match kind {
        EventKind::RunStarted(info) => Some(info.steps.iter().filter(|step| step.phase == Phase::Pull)),
        _ => None,
    });
    let hosts: BTreeMap<u32, u32> = plan.flatten().map(|step| (step.id, step.host)).collect();
    let (mut reports, mut notes) = (BTreeMap::new(), BTreeMap::new());
    for kind in kinds {
        match kind {
            EventKind::PullProgress { step, counts } => reports.entry(hosts[step]).or_insert_with(Vec::new).push(*counts),
            EventKind::StepDone { step, note } if hosts.contains_key(step) => drop(notes.entry(hosts[step]).or_insert(note.clone())),
            _ => {}
        }
    }
    (reports, notes)
}

#[track_caller]
fn assert_grows(reports: &[LayerCounts]) {
    let grows = |pair: &[LayerCounts]| {
        pair[0] != pair[1]
            && pair[0].layers <= pair[1].layers
            && pair[0].downloaded <= pair[1].downloaded
            && pair[0].complete <= pair[1].complete
    };
    assert!(reports.windows(2).all(grows), "{reports:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pull_reports_its_layers_to_the_last() {
    let (fixture, laptop, file) = start_slow_registry("layers").await;
    let up = laptop.run(&["up", path_str(&file), "--set", "container.image=slow/image:1"]).await;
    up.assert_exit_code(0).assert_contains("pull         changed gpu[01-02] (5 layers, ").assert_not_contains("Pulling");
    let (reports, notes) = pull_reports(&laptop.journal_kinds());
    let id = sha256_hex(IMAGE.as_bytes())[..12].to_owned();
    assert_eq!(notes, BTreeMap::from([(0, id.clone()), (1, id)]));
    for host in 0..2 {
        let reports = &reports[&host];
        assert_grows(reports);
        assert_eq!(reports.last(), Some(&LayerCounts { layers: 5, downloaded: 5, complete: 5 }));
        assert!(reports.iter().any(|counts| counts.layers == 5 && counts.complete < 5), "while it runs: {reports:?}");
    }
    fixture.assert_clean_and_stop().await;
}

/// While it pulls, the dashboard of `up` shows what is launched, and of which host the commands are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn launch_shows_what_it_launches() {
    let (fixture, laptop, file) = start_slow_registry("shown").await;
    let words = ["up", "--progress", "tui", path_str(&file), "--set", "container.image=slow/image:1"];
    let mut terminal = open_terminal(&laptop, &words);
    terminal.wait_for_text("gpu01: docker run -d --name orch-shown-gpu01");
    terminal.wait_for_text("gpu01: torchrun --nnodes=2");
    assert_eq!(terminal.wait_for_exit(), 0, "{}", terminal.screen_text());
    fixture.assert_clean_and_stop().await;
}

/// A docker that prints hostile text, and one that prints no layers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_and_unknown_output_of_a_pull_does_no_harm() {
    let fixture = SandboxFixture::start(SCENARIO).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("liars", &JobSpec::default()));
    let pull = |script: &str| {
        let docker = format!("case $1 in pull) {script} ;; esac\nexec \"$SANDBOX_HOST/bin/docker\" \"$@\"");
        Faults { programs: BTreeMap::from([("docker".to_owned(), docker)]), ..Faults::default() }
    };
    let hostile = r#"awk 'BEGIN { for (n = 0; n < 200000; n++) printf "evil"; print "" }'
        printf '\033]52;c;ZXZpbA==\007evil: Pull complete\n\033[2J5f70bf18a086: Pull complete\033[2J\n../../../../x: Pull complete\n'
        awk 'BEGIN { for (n = 0; n < 3000; n++) printf "%012x: Pull complete\n", n }'
        awk 'BEGIN { for (n = 0; n < 3000; n++) printf "%012x: Waiting\n", n }'"#;
    fixture.set_faults("gpu01", &pull(hostile));
    let like_podman = r#"echo 'Trying to pull slow/image:1...' >&2; echo 'Copying blob 5f70bf18a086 done' >&2; shift; set -- pull -q "$@""#;
    fixture.set_faults("gpu02", &pull(like_podman));
    fixture.end_ranks(None, 0);
    let up = laptop.run(&["up", path_str(&file), "--set", "container.image=slow/image:1"]).await;
    up.assert_exit_code(0).assert_recap("OK").assert_not_contains("evil").assert_not_contains("\u{1b}").assert_not_contains("../x");
    let (reports, notes) = pull_reports(&laptop.journal_kinds());
    let id = sha256_hex(IMAGE.as_bytes())[..12].to_owned();
    assert_eq!(notes, BTreeMap::from([(0, id.clone()), (1, id)]), "the id comes from docker image inspect");
    assert_eq!(reports.keys().copied().collect::<Vec<_>>(), [0], "a pull without layers is not reported: {reports:?}");
    assert_grows(&reports[&0]);
    assert!(reports[&0].len() < 20 && reports[&0].iter().all(|counts| counts.layers <= 256), "{reports:?}");
    let journal = std::fs::read_to_string(laptop.only_run_dir().join("journal.jsonl")).expect("a journal");
    assert!(!journal.contains("evil") && !journal.contains("\\u001b"), "only numbers are recorded");
    fixture.assert_clean_and_stop().await;
}
