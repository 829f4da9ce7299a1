//! Runs every command that the program suggests, in the state in which it suggests it: each one works.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use futures_util::future::join_all;
use orchestrate::diagnose::advice_formatter::AdviceFormatter;

use crate::support::{JobSpec, Laptop, SandboxFixture, path_str};

/// Replaces placeholders in a text with values of the test run.
const PLACEHOLDER_VALUES: [(&str, &str); 20] = [
    // Texts that already name an inventory.
    ("orchestrate plan {}", "orchestrate plan`"),
    ("orchestrate up {}", "orchestrate up`"),
    ("orchestrate up two-hosts.yaml", "orchestrate up`"),
    ("--rank {}", "--rank 1"),
    ("{on}", "gpu02"),
    ("{rank}", "1"),
    ("{absent}", "0-1"),
    ("{program}", "sh"),
    ("{path}", "/tmp"),
    ("{file}", ""),
    ("{dir}", ""),
    ("{mount}", "/"),
    ("{port}", "22"),
    ("{host}", "127.0.0.1"),
    ("{}", "gpu02"),
    ("<file>", "/etc/hostname"),
    ("<the rank it names>", "1"),
    ("PATH", "/tmp"),
    ("COMMAND", "true"),
    ("{name}", "orch-x"),
];
/// Words at which a command ends and prose continues.
const PROSE_WORDS: [&str; 8] = ["shows", "says", "ends", "and", "or", "makes", "runs", "tries"];

/// The arguments of the command at the start of a text, split as a shell would.
fn parse_leading_command(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), None, false);
    for c in text.chars() {
        match (c, quoted) {
            (c, Some(q)) if c == q => quoted = None,
            (c, Some(_)) => word.push(c),
            ('\'' | '"', None) => (quoted, any) = (Some(c), true),
            (' ' | ';' | ',' | '`' | '；' | '，' | '\n' | ':' | ')', None) => {
                let end = c != ' ' && !(c == ':' && !word.is_empty() && word != "orchestrate");
                if PROSE_WORDS.contains(&word.as_str()) {
                    return words;
                }
                if !word.is_empty() || any {
                    words.push(std::mem::take(&mut word));
                    any = false;
                }
                if end {
                    return words;
                }
            }
            (c, None) => word.push(c),
        }
    }
    if (!word.is_empty() || any) && !PROSE_WORDS.contains(&word.as_str()) {
        words.push(word);
    }
    words
}

fn read_sources(dir: &Path, found: &mut String) {
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            read_sources(&path, found);
        } else if name.ends_with(".rs") && !name.contains("test") && name != "scenes.rs" && name != "advice.rs" {
            let text = std::fs::read_to_string(&path).expect("text");
            let living = text.split("#[cfg(test)]").next().unwrap_or_default();
            found.extend(living.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")));
        }
    }
}

/// All suggested commands by their arguments, with the inventory added.
fn collect_suggested_commands(inventory: &str) -> BTreeSet<Vec<String>> {
    let advice = AdviceFormatter::new(&[inventory.to_owned()], &[], BTreeMap::new());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = String::new();
    read_sources(&root.join("src"), &mut texts);
    // The texts of the rules, without YAML syntax.
    let rules = std::fs::read_to_string(root.join("assets/diagnosis.yaml")).expect("the rules");
    texts.extend(rules.lines().filter(|line| line.trim_start().starts_with("en: ")).map(|line| {
        let text = line.trim_start().trim_start_matches("en: '").trim_end_matches('\'').replace("''", "'");
        format!("{}\n", if line.ends_with("'''") { format!("{text}'") } else { text })
    }));
    // Commands that the code builds from a verb: `advise("ps", …)`, `command("logs", &format!("--rank {rank}"))`.
    let by_verb = regex::Regex::new(r#"(?:advise|command)\("([a-z]+)", (?:&format!\()?"([^"]*)""#).expect("a pattern");
    let verbs: Vec<String> = by_verb.captures_iter(&texts).map(|c| advice.format_command(&c[1], &c[2])).collect();
    let mut found = BTreeSet::new();
    for text in verbs.iter().map(String::as_str).chain(texts.lines()) {
        let mut text = text.to_owned();
        for (location, value) in PLACEHOLDER_VALUES {
            text = text.replace(location, value);
        }
        let text = advice.complete_commands(&text);
        for (at, _) in text.match_indices("orchestrate ") {
            let before = text[..at].chars().next_back();
            let words = parse_leading_command(text[at..].trim_end_matches(['"', '\\']));
            let verb = words.get(1).map(String::as_str).unwrap_or_default();
            let verbs = [
                "up", "prepare", "down", "ps", "logs", "attach", "check", "plan", "exec", "stacks", "shell", "runs", "replay", "render",
                "tui",
            ];
            // A usage line is no command to type.
            let is_usage = words.iter().any(|word| word == "[OPTIONS]");
            if before.is_none_or(|c| !c.is_alphanumeric()) && verbs.contains(&verb) && !is_usage {
                found.insert(words[1..].to_vec());
            }
        }
    }
    found
}

/// Runs the commands and collects the failures.
async fn run_suggested_commands(laptop: &Laptop, commands: &[Vec<String>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for some in commands.chunks(4) {
        let ended = join_all(some.iter().map(|words| async move {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            (words.join(" "), laptop.run(&words).await)
        }));
        for (words, ended) in ended.await {
            let useful = !ended.stdout.trim().is_empty() || !ended.stderr.trim().is_empty() || ended.exit_code == Some(0);
            // `exec` on one host exits with the remote command's status.
            let is_remote_status = words.starts_with("exec ") && ended.stderr.contains(": exit ");
            if !useful || !is_remote_status && matches!(ended.exit_code, None | Some(2 | 4 | 6 | 70 | 255)) {
                wrong.push(format!("orchestrate {words}: {:?}\n{}{}", ended.exit_code, ended.stdout, ended.stderr));
            }
        }
    }
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suggested_commands_work() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let job = JobSpec { top_level: "prepare: [{ name: note, run: 'true' }]\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("advice", &job));
    let all = collect_suggested_commands(path_str(&file));
    assert!(all.len() > 30, "{all:#?}");
    let is = |words: &Vec<String>, verbs: &[&str]| verbs.contains(&words[0].as_str());
    // The dashboard needs a terminal; commands that end or replace the run come last.
    let (last, rest): (Vec<Vec<String>>, Vec<Vec<String>>) = all
        .into_iter()
        .filter(|words| !is(words, &["tui", "replay"]) && !words.iter().any(|word| word == "RUN"))
        .partition(|words| is(words, &["down", "up", "attach"]) || words.len() == 2 && is(words, &["prepare"]));
    assert!(
        rest.iter().all(|words| is(words, &["runs"]) || words.iter().any(|w| w == path_str(&file)) || words[1] == "--list"),
        "{rest:#?}"
    );
    // The run has failed and was torn down: nothing is on the hosts.
    let up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(2).await;
    fixture.end_ranks(Some(1), 7);
    up.wait_for_exit().await.assert_exit_code(1).assert_recap("FAILED");
    fixture.assert_no_leftovers().await;
    let (live, over): (Vec<Vec<String>>, Vec<Vec<String>>) = rest.into_iter().partition(|words| is(words, &["shell", "stacks"]));
    let mut wrong = run_suggested_commands(&laptop, &over).await;
    // The run is live, or hangs.
    fixture.clear_control_files();
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    fixture.wait_for_ranks(2).await;
    wrong.extend(run_suggested_commands(&laptop, &live).await.into_iter().filter(|output| !output.contains("kill -USR1")));
    let over: Vec<Vec<String>> = over.into_iter().filter(|words| !words.iter().any(|w| w == "-f")).collect();
    wrong.extend(run_suggested_commands(&laptop, &over).await);
    fixture.end_ranks(None, 0);
    for words in last.iter().filter(|words| is(words, &["attach"])).chain(last.iter().filter(|words| is(words, &["prepare", "up", "down"])))
    {
        wrong.extend(run_suggested_commands(&laptop, std::slice::from_ref(words)).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n----\n"));
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}
