//! What `push` and `pull` print: bars while they work on a terminal, then what changed on which hosts, and a recap.

use std::future::Future;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use crate::cli::args::ProgressMode;
use crate::cli::local_env::{print_json, print_stderr, print_stdout, user_lang};
use crate::cli::transfer_args::TransferArgs;
use crate::event::Outcome;
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::file_preview::describe_counts;
use crate::lifecycle::session::Session;
use crate::lifecycle::transfer_files::{HostTransfers, TransferSummary};
use crate::report::progress_bars_transfer::TransferBarSet;
use crate::report::style::{Tone, outcome_label};
use crate::text::hostlist::fold_equal_answers;
use crate::text::plural::count_noun;
use crate::text::shell_quote::quote;
use crate::text::width::pad_end;
use crate::transfer::error::TransferError;
use crate::transfer::progress::TransferProgress;

const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// More names are counted.
const MAX_NAMES: usize = 200;

pub(super) struct TransferBars(Option<TransferBarSet>);

impl TransferBars {
    pub(super) fn new(session: &Session, progress: ProgressMode) -> TransferBars {
        let wanted = progress == ProgressMode::Bars || (progress == ProgressMode::Auto && std::io::stderr().is_terminal());
        let names: Vec<String> =
            session.host_names().iter().map(|name| session.reporter.sanitizer().to_printable(name).as_str().to_owned()).collect();
        TransferBars(wanted.then(|| TransferBarSet::stderr(&names, user_lang())))
    }

    /// Redraws until `work` ends.
    pub(super) async fn show_while<T>(&self, progress: &TransferProgress, work: impl Future<Output = T>) -> T {
        let Some(bars) = &self.0 else { return work.await };
        let redraw = async {
            loop {
                tokio::time::sleep(REDRAW_INTERVAL).await;
                bars.update(&progress.counts());
            }
        };
        tokio::select! {
            done = work => done,
            () = redraw => std::future::pending().await,
        }
    }
}

impl Drop for TransferBars {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.as_ref().map(TransferBarSet::finish) {
            tracing::debug!(%error, "the bars could not be cleared");
        }
    }
}

/// After a failure with a path that this laptop's shell has expanded.
pub(super) fn print_home_hint(path: &str) {
    let home = std::env::home_dir().filter(|home| home.as_os_str().len() > 1);
    let Some(rest) = home.and_then(|home| Path::new(path).strip_prefix(home).ok().map(Path::to_owned)) else { return };
    let quoted = quote(&Path::new("~").join(rest).display().to_string());
    print_stderr(
        &user_lang().tr_fill("help: for the home directory of each host write {}, so that your own shell does not expand it", &[&quoted]),
    );
}

/// `3 new, 1 changed, 2.0 MiB (96 unchanged)`
fn summary_text(summary: &TransferSummary) -> String {
    let lang = user_lang();
    let unchanged = lang.tr_fill("{} unchanged", &[&summary.unchanged.to_string()]);
    if !summary.is_change() {
        return unchanged;
    }
    let rest = if summary.unchanged > 0 { format!(" ({unchanged})") } else { String::new() };
    format!("{}{rest}", describe_counts(summary, lang))
}

fn host_text(summary: &TransferSummary) -> String {
    let mut text = summary_text(summary);
    for (mark, name) in summary.names.iter().take(MAX_NAMES) {
        text.push_str(&format!("\n  {mark} {name}"));
    }
    if summary.names.len() > MAX_NAMES {
        text.push_str(&format!("\n  {}", user_lang().tr_fill("… {} more", &[&(summary.names.len() - MAX_NAMES).to_string()])));
    }
    text
}

fn status_word(result: &Result<TransferSummary, TransferError>) -> &'static str {
    match result {
        Ok(summary) if !summary.skipped.is_empty() => "failed",
        Ok(summary) if summary.is_change() => "changed",
        Ok(_) => "ok",
        Err(error) if error.unreachable => "unreachable",
        Err(_) => "failed",
    }
}

/// What people read for a `changed` host: `pull` changes nothing on the hosts, a dry run nothing at all.
fn shown_word(is_pull: bool, dry_run: bool, word: &'static str) -> &'static str {
    match (word, is_pull, dry_run) {
        ("changed", true, true) => "would copy",
        ("changed", true, false) => "copied",
        ("changed", false, true) => "would change",
        _ => word,
    }
}

/// Prints the result of each host, equal ones together, and the recap; returns the outcome.
pub(super) fn print_transfers(session: &Session, results: HostTransfers, args: &TransferArgs) -> Outcome {
    let (json, lang) = (args.progress == ProgressMode::Json, user_lang());
    let (sanitizer, style, names) = (session.reporter.sanitizer(), session.reporter.style(), session.host_names());
    let (mut fine, mut bad) = (Vec::new(), Vec::new());
    let mut counts = [("ok", 0), ("changed", 0), ("failed", 0), ("unreachable", 0)];
    let mut outcome = Outcome::Ok;
    for (name, result) in names.iter().zip(&results) {
        let word = status_word(result);
        counts.iter_mut().filter(|(of, _)| *of == word).for_each(|(_, n)| *n += 1);
        outcome = match word {
            "failed" => worse_outcome(Outcome::Failed, outcome),
            "unreachable" => worse_outcome(Outcome::Unreachable, outcome),
            _ => outcome,
        };
        if json {
            print_json(&format!("{}\n", json_line(name, word, result)));
        }
        match result {
            Ok(summary) => {
                fine.push((word, (name.clone(), sanitizer.sanitize_multiline(&host_text(summary)))));
                bad.extend(skipped_text(summary).map(|text| (name.clone(), text)));
            }
            Err(error) => {
                let hint = if error.hint.is_empty() { String::new() } else { format!("\n    help: {}", error.hint) };
                bad.push((name.clone(), format!("{}{hint}", error.what)));
            }
        }
    }
    if json {
        return outcome;
    }
    let shown_word = |word| shown_word(session.command() == "pull", args.dry_run, word);
    let columns = if args.dry_run { "would change".len() } else { "changed".len() };
    for (word, _) in counts {
        let answers: Vec<_> = fine.iter().filter(|(of, _)| *of == word).map(|(_, answer)| answer.clone()).collect();
        let label = style.paint(if word == "ok" { Tone::Ok } else { Tone::Warn }, &pad_end(lang.term(shown_word(word)), columns));
        // In a dry run the counts beside a failure are no more than a forecast either.
        let would =
            if args.dry_run && word == "failed" { format!("{}{}", lang.term(shown_word("changed")), lang.colon()) } else { String::new() };
        for (hosts, text) in fold_equal_answers(&answers) {
            print_stdout(&format!("{label}  {hosts}{}{would}{text}\n", lang.colon()));
        }
    }
    for (hosts, text) in fold_equal_answers(&bad) {
        let text = lang.lines(&sanitizer.sanitize_multiline(&text)).into_owned();
        print_stderr(&format!("{}{}{text}", style.paint(Tone::Bad, &hosts), lang.colon()));
    }
    let shown: Vec<String> = counts.iter().map(|(word, n)| format!("{} {n}", lang.term(shown_word(word)))).collect();
    let dry = if args.dry_run { lang.tr("  (dry run: nothing was changed)") } else { "" };
    let hosts = count_noun(names.len(), "host");
    let (label, tone) = outcome_label(&outcome);
    let label = style.paint(tone, &lang.message(label));
    print_stderr(&format!("{}  {}  {label}  {}  {}{dry}", lang.tr("RECAP"), session.command(), lang.message(&hosts), shown.join("  ")));
    outcome
}

fn skipped_text(summary: &TransferSummary) -> Option<String> {
    let list = summary.skipped.iter().map(|line| format!("\n  {line}")).collect::<String>();
    (!summary.skipped.is_empty()).then(|| format!("not copied:{list}"))
}

fn json_line(host: &str, word: &str, result: &Result<TransferSummary, TransferError>) -> serde_json::Value {
    match result {
        Ok(summary) => serde_json::json!({
            "host": host, "result": word, "new": summary.new, "changed": summary.changed, "modes": summary.modes, "deleted": summary.deleted,
            "unchanged": summary.unchanged, "bytes": summary.bytes, "skipped": summary.skipped,
            "names": summary.names.iter().map(|(mark, name)| format!("{mark} {name}")).collect::<Vec<_>>(),
        }),
        Err(error) => serde_json::json!({ "host": host, "result": word, "error": error.what, "help": error.hint }),
    }
}
