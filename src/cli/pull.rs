//! `pull`: a file or a directory of every host to `DEST/<host>/`.

use std::sync::Arc;

use crate::cli::args::ProgressMode;
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_stderr, user_lang};
use crate::cli::open_session::open_query;
use crate::cli::push::check_host_path;
use crate::cli::transfer_args::{PullArgs, refuse_surplus_word};
use crate::cli::transfer_output::{TransferBars, print_home_hint, print_transfers};
use crate::event::Outcome;
use crate::lifecycle::transfer_files::{TransferMode, pull_files};
use crate::transfer::entry::TreeName;
use crate::transfer::host_stream::HostDirectory;
use crate::transfer::progress::TransferProgress;
use crate::transfer::pull_survey::PullSource;
use crate::transfer::tree_source::SyncMode;

pub(crate) async fn run(args: &PullArgs) -> Result<Outcome, CliError> {
    refuse_surplus_word(
        "pull",
        [&args.source, &args.destination.to_string_lossy()],
        args.surplus.as_deref(),
        !args.transfer.files.is_empty(),
    )?;
    check_host_path("SRC", &args.source)?;
    if args.destination.exists() && !args.destination.is_dir() {
        return Err(CliError::Usage(format!(
            "{}: it is no directory\n    help: name a directory; each host gets one in it",
            args.destination.display()
        )));
    }
    let common = args.transfer.common_args();
    let (session, signals) = open_query("pull", &common)?;
    let progress = Arc::new(TransferProgress::new(session.inventory.hosts.len()));
    let mode =
        TransferMode { dry_run: args.transfer.dry_run, names: args.transfer.diff || args.transfer.verbose > 0, sync: SyncMode::default() };
    let bars = TransferBars::new(&session, args.transfer.progress);
    let work = bars.show_while(&progress, pull_files(&session, pull_source(&args.source), &args.destination, mode, &progress));
    let outcome = match signals.run_until_stopped(work).await {
        Ok(results) => {
            drop(bars);
            let has_files = results.iter().any(Result::is_ok);
            let outcome = print_transfers(&session, results, &args.transfer);
            if has_files && args.transfer.progress != ProgressMode::Json && !args.transfer.dry_run {
                let directory = args.destination.join("<host>").display().to_string();
                print_stderr(
                    &user_lang().tr_fill("the files of each host are in {}", &[&session.reporter.sanitizer().sanitize_line(&directory)]),
                );
            }
            outcome
        }
        Err(outcome) => outcome,
    };
    if outcome == Outcome::Failed {
        print_home_hint(&args.source);
    }
    Ok(session.disconnect(&signals, outcome).await)
}

fn pull_source(path: &str) -> PullSource {
    let as_file = path.rsplit_once('/').and_then(|(above, name)| {
        let above = if above.is_empty() { "/" } else { above };
        Some((HostDirectory::on_host(above), TreeName::parse(name.as_bytes()).ok()?))
    });
    PullSource { directory: HostDirectory::on_host(path), as_file }
}
