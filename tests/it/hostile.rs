//! Hosts that say what a terminal would obey: in answers, in logs, in their last words. No command hands it on, and none shows a secret.

use std::collections::BTreeMap;

use orchestrate::sandbox::Faults;

use crate::support::{Bench, Ended, Job, word};

/// OSC 52 (writes the clipboard), clearing the screen, half a character, a C1 control, an order of letters, BEL: for printf of sh.
const EVIL: &str = r"\033]52;c;ZXZpbA==\007evil\033[2J\033[31m \303 \302\2332J \342\200\256txt\r\007";

/// What a terminal obeys, beside our own colours.
fn obeyed(text: &str) -> Vec<char> {
    let own = ["\u{1b}[0m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m"];
    let rest = own.iter().fold(text.to_owned(), |text, own| text.replace(own, ""));
    rest.chars().filter(|c| c.is_control() && !matches!(c, '\n' | '\t') || ('\u{202a}'..='\u{202e}').contains(c)).collect()
}

#[track_caller]
fn harmless(ended: &Ended) -> &Ended {
    assert_eq!(obeyed(&ended.out), [], "--- out\n{:?}", ended.out);
    assert_eq!(obeyed(&ended.err), [], "--- err\n{:?}", ended.err);
    ended
}

fn programs(list: &[(&str, String)]) -> Faults {
    let programs: BTreeMap<String, String> = list.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
    Faults { programs, noise: Some(format!("Welcome \u{1b}]52;c;{}\u{7}\u{9b}2J\n", "ZXZpbA==")), ..Faults::default() }
}

/// The shell of every answer dies, and its last words are the host's.
fn dying() -> Faults {
    programs(&[("date", format!("printf '{EVIL} last words\\n' >&2; kill -PIPE $PPID"))])
}

/// Every answer comes, and holds what no terminal should see.
fn lying() -> Faults {
    let say = |rest: &str| format!("printf '{EVIL}{rest}\\n'; printf '{EVIL}\\n' >&2");
    programs(&[("uname", say(" x86_64")), ("nvidia-smi", say(", 0, 1")), ("df", say(" 1 2 3 4 5")), ("ip", say(""))])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_words_of_a_host_cannot_reach_the_terminal() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("evil", &Job::default()));
    let file = word(&file);
    for host in ["gpu01", "gpu02"] {
        bench.faults(host, &dying());
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
        harmless(&ended).says("last words");
        let coloured = laptop.run(&[words, &["--color", "always"]].concat()).await;
        if words.first() != Some(&"shell") {
            harmless(&coloured);
        }
    }
    let exec = laptop.run(&["exec", file, "--", &format!("printf '{EVIL}\\n'; printf '{EVIL} last words\\n' >&2; kill -PIPE $$")]).await;
    harmless(&exec).says("last words");
    for host in ["gpu01", "gpu02"] {
        bench.faults(host, &Faults::default());
    }
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_and_logs_are_cleaned_and_secrets_are_hidden() {
    let bench = Bench::hosts(2).await;
    let job = Job { top: "secrets: [TOKEN]\nteardown: never\n".to_owned(), ..Job::default() };
    let (mut laptop, mut other, file) = (bench.laptop("laptop"), bench.laptop("other"), bench.inventory("evil", &job));
    let file = word(&file);
    for laptop in [&mut laptop, &mut other] {
        laptop.variables.insert("TOKEN".to_owned(), "open-sesame".to_owned());
    }
    bench.job(&format!("printf '{EVIL} the word is open-sesame\\n'; printf '{EVIL} open-sesame\\n' >&2"));
    harmless(&laptop.run(&["up", "-d", file]).await).code(0);
    bench.ranks_up(2).await;
    for host in ["gpu01", "gpu02"] {
        bench.faults(host, &lying());
    }
    bench.end(None, 3);
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
        &["exec", file, "--", &format!("printf '{EVIL} open-sesame\\n'")],
        &["exec", file, "--progress", "json", "--", &format!("printf '{EVIL} open-sesame\\n'")],
        &["down", file, "--dry-run"],
    ] {
        let ended = other.run(words).await;
        harmless(&ended).silent_about("open-sesame");
        if words.contains(&"json") || words.contains(&"--json") {
            let whole = words.contains(&"--json");
            let texts: Vec<&str> = if whole { vec![&ended.out] } else { ended.out.lines().collect() };
            assert!(texts.iter().all(|text| serde_json::from_str::<serde_json::Value>(text).is_ok()), "{}", ended.out);
        }
    }
    other.run(&["logs", file]).await.code(0).says("the word is ***");
    for host in ["gpu01", "gpu02"] {
        bench.faults(host, &Faults::default());
    }
    harmless(&other.run(&["down", file]).await).code(0).silent_about("open-sesame");
    bench.done().await;
}
