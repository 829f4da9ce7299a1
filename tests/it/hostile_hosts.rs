//! Hosts that print terminal escapes: in answers, in logs, as the last output of a dying shell. No command passes them on or shows a secret.

use std::collections::BTreeMap;

use orchestrate::sandbox::Faults;

use crate::support::{CliOutput, JobSpec, SandboxFixture, path_str};

/// For printf of sh: OSC 52 (writes the clipboard), clear screen, half a character, a C1 control, a bidirectional override, BEL.
const HOSTILE_OUTPUT: &str = r"\033]52;c;ZXZpbA==\007evil\033[2J\033[31m \303 \302\2332J \342\200\256txt\r\007";

/// Control characters that a terminal acts on, except our own colours.
fn terminal_control_chars(text: &str) -> Vec<char> {
    let own = ["\u{1b}[0m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m"];
    let rest = own.iter().fold(text.to_owned(), |text, own| text.replace(own, ""));
    rest.chars().filter(|c| c.is_control() && !matches!(c, '\n' | '\t') || ('\u{202a}'..='\u{202e}').contains(c)).collect()
}

#[track_caller]
fn assert_harmless(ended: &CliOutput) -> &CliOutput {
    assert_eq!(terminal_control_chars(&ended.stdout), [], "--- out\n{:?}", ended.stdout);
    assert_eq!(terminal_control_chars(&ended.stderr), [], "--- err\n{:?}", ended.stderr);
    ended
}

fn program_faults(list: &[(&str, String)]) -> Faults {
    let programs: BTreeMap<String, String> = list.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
    Faults { programs, noise: Some(format!("Welcome \u{1b}]52;c;{}\u{7}\u{9b}2J\n", "ZXZpbA==")), ..Faults::default() }
}

/// The shell of every answer dies with hostile last output.
fn dying_shell_faults() -> Faults {
    program_faults(&[("date", format!("printf '{HOSTILE_OUTPUT} last words\\n' >&2; kill -PIPE $PPID"))])
}

/// Every answer arrives and contains hostile bytes.
fn hostile_answer_faults() -> Faults {
    let say = |rest: &str| format!("printf '{HOSTILE_OUTPUT}{rest}\\n'; printf '{HOSTILE_OUTPUT}\\n' >&2");
    program_faults(&[("uname", say(" x86_64")), ("nvidia-smi", say(", 0, 1")), ("df", say(" 1 2 3 4 5")), ("ip", say(""))])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dying_host_output_cannot_reach_the_terminal() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("evil", &JobSpec::default()));
    let file = path_str(&file);
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &dying_shell_faults());
    }
    for words in [
        &["ps", file][..],
        &["ps", file, "--progress", "json"],
        &["logs", file],
        &["attach", file],
        &["attach", file, "--progress", "json"],
        &["plan", file, "--facts"],
        &["up", file, "--dry-run"],
        &["down", file, "--dry-run"],
        &["check", file],
        &["stacks", file],
        &["shell", "-i", file, "gpu01", "--", "true"],
    ] {
        let ended = laptop.run(words).await;
        assert_harmless(&ended).assert_contains("last words");
        let coloured = laptop.run(&[words, &["--color", "always"]].concat()).await;
        if words.first() != Some(&"shell") {
            assert_harmless(&coloured);
        }
    }
    let exec = laptop
        .run(&["exec", file, "--", &format!("printf '{HOSTILE_OUTPUT}\\n'; printf '{HOSTILE_OUTPUT} last words\\n' >&2; kill -PIPE $$")])
        .await;
    assert_harmless(&exec).assert_contains("last words");
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &Faults::default());
    }
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_and_logs_are_sanitized_and_secrets_hidden() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let job = JobSpec { top_level: "secrets: [TOKEN]\nteardown: never\n".to_owned(), ..JobSpec::default() };
    let (mut laptop, mut other, file) = (fixture.new_laptop("laptop"), fixture.new_laptop("other"), fixture.write_inventory("evil", &job));
    let file = path_str(&file);
    for laptop in [&mut laptop, &mut other] {
        laptop.env_vars.insert("TOKEN".to_owned(), "open-sesame".to_owned());
    }
    fixture
        .set_payload_setup(&format!("printf '{HOSTILE_OUTPUT} the word is open-sesame\\n'; printf '{HOSTILE_OUTPUT} open-sesame\\n' >&2"));
    assert_harmless(&laptop.run(&["up", "-d", file]).await).assert_exit_code(0);
    fixture.wait_for_ranks(2).await;
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &hostile_answer_faults());
    }
    fixture.end_ranks(None, 3);
    for words in [
        &["logs", file][..],
        &["attach", file],
        &["attach", file, "--progress", "json"],
        &["logs", file, "--tail", "5", "--color", "always"],
        &["ps", file],
        &["ps", file, "--progress", "json"],
        &["plan", file, "--facts"],
        &["plan", file, "--facts", "--json"],
        &["check", file],
        &["stacks", file],
        &["exec", file, "--", &format!("printf '{HOSTILE_OUTPUT} open-sesame\\n'")],
        &["exec", file, "--progress", "json", "--", &format!("printf '{HOSTILE_OUTPUT} open-sesame\\n'")],
        &["down", file, "--dry-run"],
    ] {
        let ended = other.run(words).await;
        assert_harmless(&ended).assert_not_contains("open-sesame");
        if words.contains(&"json") || words.contains(&"--json") {
            let whole = words.contains(&"--json");
            let texts: Vec<&str> = if whole { vec![&ended.stdout] } else { ended.stdout.lines().collect() };
            assert!(texts.iter().all(|text| serde_json::from_str::<serde_json::Value>(text).is_ok()), "{}", ended.stdout);
        }
    }
    other.run(&["logs", file]).await.assert_exit_code(0).assert_contains("the word is ***");
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &Faults::default());
    }
    assert_harmless(&other.run(&["down", file]).await).assert_exit_code(0).assert_not_contains("open-sesame");
    fixture.assert_clean_and_stop().await;
}
