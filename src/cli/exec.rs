//! `exec`: one command on every host, equal outputs folded as `clush -b` does.

use crate::cli::args::{ExecArgs, Progress};
use crate::cli::desk::Faces;
use crate::cli::exit::{Failure, worse};
use crate::cli::laptop::{print, say};
use crate::cli::session::{Need, Session, inventory};
use crate::event::Outcome;
use crate::remote::RemoteError;
use crate::report::loglines::Logs;
use crate::report::recap::equal;
use crate::report::words::Role;
use crate::shell::{Command, Output};

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &ExecArgs) -> Result<Outcome, Failure> {
    let (inventory, base) = inventory(&args.host, Need::Connection)?;
    let faces = Faces { progress: Progress::Quiet, logs: Logs::None, data: false };
    let session = Session::open("exec", &args.host, inventory, base, faces, &[])?;
    let command = match args.words.as_slice() {
        [line] => Command::sh("exec", line.as_str(), args.timeout),
        words => Command::argv("exec", words, args.timeout),
    };
    let names = session.names();
    let commands = (0..names.len()).map(|i| (i, command.clone())).collect();
    let mut answers: Vec<Option<Result<Output, RemoteError>>> = (0..names.len()).map(|_| None).collect();
    let fan_out = session.engine.fan_out(commands, |i, answer| {
        if let Some(place) = answers.get_mut(i) {
            *place = Some(answer);
        }
    });
    tokio::select! {
        () = fan_out => {}
        result = tokio::signal::ctrl_c() => {
            result.map_err(anyhow::Error::from)?;
            return Ok(Outcome::Signal(2));
        }
    }
    let outcome = show(&session, &names, answers, args);
    session.engine.close().await;
    Ok(outcome)
}

fn show(session: &Session, names: &[String], answers: Vec<Option<Result<Output, RemoteError>>>, args: &ExecArgs) -> Outcome {
    let (mut spoken, mut failed, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let mut outcome = Outcome::Ok;
    let cleaner = session.desk.cleaner();
    let style = session.desk.style();
    for (name, answer) in names.iter().zip(answers) {
        match answer {
            Some(Ok(output)) => {
                let mut text = cleaner.text(&output.text());
                if output.dropped > 0 {
                    text.push_str(&format!("… {} more bytes\n", output.dropped));
                }
                let complaint = cleaner.text(&String::from_utf8_lossy(&output.stderr));
                if args.host.progress == Progress::Json {
                    let line = serde_json::json!({ "host": name, "code": output.code, "stdout": text, "stderr": complaint });
                    print(&format!("{line}\n"));
                } else {
                    spoken.push((name.clone(), text));
                }
                if !output.ok() {
                    outcome = worse(Outcome::Failed, outcome);
                    failed.push((
                        name.clone(),
                        format!("exit {}{}{}", output.code, if complaint.is_empty() { "" } else { "\n" }, complaint.trim_end()),
                    ));
                } else if !complaint.is_empty() && args.host.progress != Progress::Json {
                    failed.push((name.clone(), format!("standard error:\n{}", complaint.trim_end())));
                }
            }
            Some(Err(error)) => {
                outcome = worse(Outcome::Unreachable, outcome);
                let hint = if error.hint().is_empty() { String::new() } else { format!("\n  help: {}", error.hint()) };
                lost.push((name.clone(), format!("{error}{hint}")));
            }
            None => lost.push((name.clone(), "no answer".to_owned())),
        }
    }
    for (hosts, text) in equal(&spoken) {
        if !text.is_empty() {
            print(&format!("---- {hosts}\n{text}{}", if text.ends_with('\n') { "" } else { "\n" }));
        }
    }
    if args.host.progress != Progress::Json {
        for (hosts, text) in equal(&failed) {
            say(&format!("{}: {text}", style.paint(Role::Warn, &hosts)));
        }
    }
    for (hosts, text) in equal(&lost) {
        say(&format!("{}: {}", style.paint(Role::Bad, &hosts), cleaner.text(&text)));
    }
    outcome
}
