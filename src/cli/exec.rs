//! `exec`: runs one command on every host and groups equal outputs, as `clush -b` does. The output of a single host is streamed instead
//! (`exec_single_host`).

use crate::cli::args::{CommonArgs, ExecArgs};
use crate::cli::exec_single_host::{has_piped_input, has_unread_input, pipe_to_single_host, stream_single_host};
use crate::cli::exit::{CliError, as_ssh_exit};
use crate::cli::local_env::{print_json, print_stderr, print_stdout, print_untranslated, user_lang};
use crate::cli::open_session::open_query;
use crate::cli::unreachable::print_unreachable;
use crate::event::Outcome;
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::session::Session;
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::remote::RemoteError;
use crate::report::style::Tone;
use crate::text::hostlist::fold_equal_answers;
use crate::text::shell_quote::join_quoted;
use crate::text::translation::Lang;

/// Kept output of all hosts together: this much standard output and this much standard error.
const MAX_OUTPUT_BYTES: usize = 256 << 20;

pub(crate) async fn run(args: &ExecArgs) -> Result<Outcome, CliError> {
    let common = CommonArgs { limit: args.host.clone().or_else(|| args.common.limit.clone()), ..args.common.clone() };
    let (session, signals) = open_query("exec", &common)?;
    let command = match args.command.as_slice() {
        [line] => RemoteCommand::from_script("exec", line.as_str(), args.timeout),
        argv => RemoteCommand::from_script("exec", join_quoted(argv), args.timeout),
    };
    let names = session.host_names();
    let is_single = names.len() == 1 && !args.common.wants_json(args.json);
    let outcome = if let ([name], true) = (names.as_slice(), is_single) {
        let run = async {
            if has_piped_input() {
                pipe_to_single_host(&session, name, &command).await
            } else {
                stream_single_host(&session, name, &command).await
            }
        };
        signals.run_until_stopped(run).await.unwrap_or_else(Ok)
    } else {
        match signals.run_until_stopped(run_on_all_hosts(&session, command)).await {
            Ok(answers) => {
                let outcome = print_results(&session, &names, answers, args);
                if has_unread_input() {
                    print_stderr("standard input was not sent: only one host takes it (`--limit HOST`)");
                }
                Ok(outcome)
            }
            Err(outcome) => Ok(outcome),
        }
    };
    // Closing the connections ends a cancelled command on the hosts.
    match outcome {
        Ok(outcome) => match session.disconnect(&signals, outcome).await {
            outcome if is_single => as_ssh_exit(outcome),
            outcome => Ok(outcome),
        },
        Err(error) => match session.disconnect(&signals, Outcome::Failed).await {
            signal @ Outcome::Signal(_) => Ok(signal),
            _ => Err(error),
        },
    }
}

type HostAnswers = Vec<(usize, Result<CommandOutput, RemoteError>)>;

async fn run_on_all_hosts(session: &Session, command: RemoteCommand) -> HostAnswers {
    let hosts = session.inventory.hosts.len();
    let command = command.with_output_limit(MAX_OUTPUT_BYTES / hosts.max(1));
    session.engine.fan_out((0..hosts).map(|host| (host, command.clone())).collect()).await
}

fn print_results(session: &Session, names: &[String], answers: HostAnswers, args: &ExecArgs) -> Outcome {
    let (json, lang) = (args.common.wants_json(args.json), user_lang());
    let (mut outputs, mut notes, mut unreachable) = (Vec::new(), Vec::new(), Vec::new());
    let mut outcome = Outcome::Ok;
    let sanitizer = session.reporter.sanitizer();
    let style = session.reporter.style();
    for (name, answer) in answers.into_iter().filter_map(|(host, answer)| Some((names.get(host)?, answer))) {
        match answer {
            Ok(output) => {
                let mut text = sanitizer.sanitize_multiline(&output.stdout_text());
                if output.dropped_bytes > 0 {
                    let dropped = output.dropped_bytes.to_string();
                    text.push_str(&lang.tr_fill("… {} more bytes: select one host with --limit for the complete output", &[&dropped]));
                    text.push('\n');
                }
                let stderr = sanitizer.sanitize_multiline(&String::from_utf8_lossy(&output.stderr));
                if json {
                    let line =
                        serde_json::json!({ "format": "exec 1", "host": name, "code": output.exit_code, "stdout": text, "stderr": stderr });
                    print_json(&format!("{line}\n"));
                } else {
                    notes.extend(describe_end(&output, !text.is_empty(), stderr.trim_end(), lang).map(|note| (name.clone(), note)));
                    outputs.push((name.clone(), text));
                }
                if !output.is_success() {
                    outcome = worse_outcome(Outcome::Failed, outcome);
                }
            }
            Err(error) => {
                outcome = worse_outcome(Outcome::Unreachable, outcome);
                if json {
                    let line =
                        serde_json::json!({ "format": "exec 1", "host": name, "error": sanitizer.sanitize_line(&error.to_string()) });
                    print_json(&format!("{line}\n"));
                }
                unreachable.push((name.clone(), error.to_string(), error.hint().to_owned()));
            }
        }
    }
    for (hosts, text) in fold_equal_answers(&outputs) {
        if !text.is_empty() {
            print_stdout(&format!("---- {hosts}\n{text}{}", if text.ends_with('\n') { "" } else { "\n" }));
        }
    }
    for (hosts, text) in fold_equal_answers(&notes) {
        // What the command wrote is not translated.
        print_untranslated(&format!("{}{}{text}", style.paint(Tone::Warn, &hosts), lang.colon()));
    }
    print_unreachable(session, unreachable);
    outcome
}

/// What is said of a host beside its output: how its command failed, its standard error, or that it wrote nothing.
fn describe_end(output: &CommandOutput, has_stdout: bool, stderr: &str, lang: Lang) -> Option<String> {
    if !output.is_success() {
        let exit = lang.tr_fill("exit {}", &[&output.exit_code.to_string()]);
        return Some(if stderr.is_empty() { exit } else { format!("{exit}\n{stderr}") });
    }
    if !stderr.is_empty() {
        return Some(format!("{}\n{stderr}", lang.tr("standard error:")));
    }
    (!has_stdout).then(|| lang.tr("no output").to_owned())
}
