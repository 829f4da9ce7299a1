//! `push`: a file or a directory of the laptop to every host.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::cli::args::ProgressMode;
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_stderr, user_lang};
use crate::cli::open_session::open_query;
use crate::cli::transfer_args::{PushArgs, refuse_surplus_word};
use crate::cli::transfer_output::{TransferBars, print_home_hint, print_transfers};
use crate::event::Outcome;
use crate::lifecycle::transfer_files::{TransferMode, push_files};
use crate::transfer::host_stream::HostDirectory;
use crate::transfer::local_tree::{LocalTree, TreeFilter};
use crate::transfer::progress::TransferProgress;
use crate::transfer::tree_source::{SyncMode, TreeSource};

pub(crate) async fn run(args: &PushArgs) -> Result<Outcome, CliError> {
    refuse_surplus_word(
        "push",
        [&args.source.to_string_lossy(), &args.destination],
        args.surplus.as_deref(),
        !args.transfer.files.is_empty(),
    )?;
    let (tree, directory) = read_source(args)?;
    let common = args.transfer.common_args();
    let (session, signals) = open_query("push", &common)?;
    let progress = TransferProgress::new(session.inventory.hosts.len());
    let mode = TransferMode {
        dry_run: args.transfer.dry_run,
        names: args.transfer.diff || args.transfer.verbose > 0,
        sync: SyncMode { mark: args.delete, delete: args.delete },
    };
    let bars = TransferBars::new(&session, args.transfer.progress);
    let work = bars.show_while(&progress, push_files(&session, &tree, &directory, mode, &progress));
    let outcome = match signals.run_until_stopped(work).await {
        Ok(Ok(results)) => {
            drop(bars);
            let outcome = print_transfers(&session, results, &args.transfer);
            if outcome == Outcome::Ok && args.transfer.progress != ProgressMode::Json && !args.transfer.dry_run {
                let place = session.reporter.sanitizer().sanitize_line(&args.destination);
                print_stderr(&user_lang().tr_fill("it is at {} on each host", &[&place]));
            }
            outcome
        }
        Ok(Err(problem)) => {
            print_stderr(&format!("{}\n    help: {}", problem.what, problem.hint));
            Outcome::Failed
        }
        Err(outcome) => outcome,
    };
    if outcome == Outcome::Failed {
        print_home_hint(&args.destination);
    }
    Ok(session.disconnect(&signals, outcome).await)
}

/// Reads what is sent, before any host is contacted.
fn read_source(args: &PushArgs) -> Result<(TreeSource, HostDirectory), CliError> {
    let (source, destination) = (args.source.as_path(), args.destination.as_str());
    check_host_path("DEST", destination)?;
    if source.is_dir() {
        let filter = TreeFilter { exclude: args.exclude.clone(), gitignore: args.gitignore };
        let tree = LocalTree::walk(source, &filter).map_err(|problems| CliError::Usage(problems.join("\n")))?;
        if args.delete && (tree.entries.is_empty() || matches!(destination.trim_end_matches('/'), "" | "~")) {
            let help = "--delete removes what SRC does not have: name a SRC that is not empty and a DEST that holds nothing else";
            return Err(CliError::Usage(format!("--delete would remove everything in `{destination}`\n    help: {help}")));
        }
        return Ok((TreeSource::Local(tree), HostDirectory::on_host(destination)));
    }
    if args.delete {
        return Err(CliError::Usage(format!("{}: --delete needs a directory\n    help: remove --delete", source.display())));
    }
    let (directory, name) = split_destination(source, destination);
    let tree = LocalTree::single_file(source, &name).map_err(CliError::Usage)?;
    Ok((TreeSource::Local(tree), HostDirectory::on_host(directory)))
}

/// A path of a host is absolute or below the ssh user's home.
pub(crate) fn check_host_path(what: &str, path: &str) -> Result<(), CliError> {
    let plain = path == "~" || path.starts_with("~/") || path.starts_with('/');
    if plain && !path.contains('\0') && !path.split('/').any(|component| component == "..") {
        return Ok(());
    }
    let help = "write an absolute path or `~/…` (quoted, so that your own shell does not expand it), without `..`";
    Err(CliError::Usage(format!("{what} `{path}`: this is no path on a host\n    help: {help}")))
}

/// The directory and the name of a single file's destination.
fn split_destination(source: &Path, destination: &str) -> (String, Vec<u8>) {
    let own_name = || source.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
    if destination == "~" || destination.ends_with('/') {
        return (destination.to_owned(), own_name());
    }
    match destination.rsplit_once('/') {
        Some(("", name)) => ("/".to_owned(), name.as_bytes().to_vec()),
        Some((directory, name)) => (directory.to_owned(), name.as_bytes().to_vec()),
        None => (destination.to_owned(), own_name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_split_and_checked() {
        let split = |to: &str| {
            let (directory, name) = split_destination(Path::new("./dist/x.whl"), to);
            (directory, String::from_utf8(name).expect("text"))
        };
        for (to, directory, name) in
            [("/tmp/", "/tmp/", "x.whl"), ("/tmp/y.whl", "/tmp", "y.whl"), ("/y", "/", "y"), ("~", "~", "x.whl"), ("~/a/b", "~/a", "b")]
        {
            assert_eq!(split(to), (directory.to_owned(), name.to_owned()), "{to}");
        }
        for bad in ["tmp/x", "", "~li/x", "/a/../b", "./x"] {
            assert!(check_host_path("DEST", bad).is_err(), "{bad}");
        }
        assert!(check_host_path("DEST", "/a b/..c").is_ok());
    }
}
