//! Hostile files that a rank plants where it can write, against every script that reads there, in every possible `/bin/sh`.
#![expect(clippy::disallowed_methods, clippy::expect_used, clippy::panic, reason = "the tests use real shells and files through helpers")]

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use orchestrate::model::log_file::LogFile;
use orchestrate::model::remote_command::RemoteCommand;
use orchestrate::plan::action::cleanup::{CleanupTarget, RemoveFiles, VerifyRemoved};
use orchestrate::plan::action::{Action, Execution};
use orchestrate::plan::facts::HostFacts;
use orchestrate::plan::facts_request::{FactsRequest, facts_command};
use orchestrate::plan::host_context::HostContext;
use orchestrate::plan::postmortem;
use orchestrate::plan::protocol::log_frames;
use orchestrate::plan::protocol::log_frames::{LogFrame, LogFrameReader, LogStreamPurpose};

const RUN_ID: &str = "20261122-101500-ab12";
const SECRET: &str = "the ssh user's own words";

/// The shells that hosts may have, each as the arguments before a script.
fn available_shells() -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let mut all = vec![words(&["dash"]), words(&["bash", "--posix"]), words(&["busybox", "sh"])];
    // Debian's /bin/sh is dash.
    if std::fs::canonicalize("/bin/sh").is_ok_and(|sh| !sh.ends_with("dash")) {
        all.push(words(&["/bin/sh"]));
    }
    let there = |shell: &Vec<String>| {
        Command::new(&shell[0]).args(&shell[1..]).args(["-c", "exit 0"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    all.into_iter().filter(there).collect()
}

/// A host's directories, and a secret beside them that must not change.
struct TestHost {
    dir: tempfile::TempDir,
}

impl TestHost {
    fn new() -> TestHost {
        let host = TestHost { dir: tempfile::tempdir().expect("a folder") };
        for dir in ["n/h.private", "n/h.out", "home"] {
            std::fs::create_dir_all(host.path(dir)).expect("made");
        }
        std::fs::create_dir_all(host.path(&format!("n/h.in/{RUN_ID}"))).expect("made");
        std::fs::write(host.path("home/secret"), format!("{SECRET}\n")).expect("written");
        std::fs::write(host.path("n/h.private/current"), format!("{RUN_ID}\n")).expect("written");
        std::fs::write(host.path("n/h.in/current"), format!("{RUN_ID}\n")).expect("written");
        std::fs::write(host.path(&format!("n/h.private/{RUN_ID}.json")), "{}\n").expect("written");
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path in the directory that ranks can write; its name starts with the run id.
    fn out_file(&self, name: &[u8]) -> PathBuf {
        let name = [RUN_ID.as_bytes(), b".", name].concat();
        self.path("n/h.out").join(std::ffi::OsStr::from_bytes(&name))
    }

    fn write_out_file(&self, name: &str, text: &str) {
        std::fs::write(self.out_file(name.as_bytes()), text).expect("written");
    }

    fn host_context(&self) -> HostContext {
        HostContext { run_id: RUN_ID.to_owned(), ..HostContext::new("n", "h", self.dir.path().to_str().expect("text").to_owned()) }
    }

    /// The output of a script, which must end by itself.
    fn run_script(&self, sh: &[String], script: &str, input: &[u8]) -> Vec<u8> {
        // Run from a file: a shell that reads its script from a pipe may also consume the input after it.
        let (file, words) = (self.path("script"), self.path("input"));
        std::fs::write(&file, script).and_then(|()| std::fs::write(&words, input)).expect("written");
        let out = Command::new(&sh[0])
            .args(&sh[1..])
            .arg(&file)
            .current_dir(self.path("home"))
            .env("HOME", self.path("home"))
            .stdin(std::fs::File::open(&words).expect("its input"))
            .stderr(Stdio::null())
            .stdout(Stdio::piped())
            .output()
            .expect("a shell");
        out.stdout
    }

    fn fetch_logs(&self, sh: &[String]) -> (BTreeMap<LogFile, Vec<u8>>, Vec<LogFrame>) {
        // More acknowledgements than the script can need.
        let acks: String = (1..2000).map(|_| "1000000000 1000000\n").collect();
        let command = log_frames::log_stream_command(&self.host_context(), &[], 1, LogStreamPurpose::Fetch, true);
        let mut reader = LogFrameReader::default();
        reader.push(&self.run_script(sh, &command.script, acks.as_bytes()));
        let (mut logs, mut frames) = (BTreeMap::<LogFile, Vec<u8>>::new(), Vec::new());
        while let Some(frame) = reader.next_frame().expect("a valid frame") {
            match frame {
                LogFrame::Data { file, bytes, .. } => logs.entry(file).or_default().extend_from_slice(&bytes),
                other => frames.push(other),
            }
        }
        (logs, frames)
    }

    /// No planted command ran, and the ssh user's files are unchanged.
    fn assert_unharmed(&self, after: &str) {
        let names: Vec<_> = std::fs::read_dir(self.path("home")).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
        assert_eq!(names, ["secret"], "{after}");
        assert_eq!(std::fs::read_to_string(self.path("home/secret")).expect("there"), format!("{SECRET}\n"), "{after}");
    }

    /// About two hundred names that could confuse a shell, a parser or a terminal; links, pipes and directories with valid names; valid names
    /// with invalid content; and one well-behaved rank.
    fn plant_hostile_files(&self) {
        self.plant_hostile_names();
        self.plant_links_and_pipes();
        for (rank, text) in
            [(30, "a[$(touch X)] 5 5 -"), (31, "$(touch X)"), (32, "-1 -1 -1 -"), (33, "1\n2\n"), (34, ""), (35, "\u{1b}[2J 1 1")]
        {
            self.write_out_file(&format!("rank-{rank}.0.pid"), text);
            self.write_out_file(&format!("rank-{rank}.0.rc"), text);
            self.write_out_file(&format!("rank-{rank}.0.log"), &format!("log {rank}\n"));
            self.write_out_file(&format!("rank-{rank}.0.end"), "");
        }
        self.write_out_file("rank-0.0.pid", "7 99 1795251815.5 -\n");
        self.write_out_file("rank-0.0.log", "fine\n");
        self.write_out_file("rank-0.0.rc", "3 1795251820.5\n");
        self.write_out_file("rank-0.0.end", "");
        self.write_out_file("node.pid", "5 98 1795251815.1 -\n");
        self.write_out_file("node.log", "the launcher\n");
        self.write_out_file("node.rc", "1 1795251821.0\n");
        self.write_out_file("node.end", "");
    }

    fn plant_hostile_names(&self) {
        let wicked = [
            "$(touch X)",
            "`touch X`",
            "${z:-$(touch X)}",
            ";touch${IFS}X;",
            ":-0};touch${IFS}X;:${z",
            "|touch X",
            "&touch X&",
            "\ntouch X\n",
        ];
        let odd = [
            "a[$(touch X)]",
            "..",
            "*",
            "?",
            "[0-9]",
            "~",
            "'",
            "\"",
            "\\",
            "-rf",
            " ",
            "\t",
            "\u{1b}]52;c;eA==\u{7}",
            "\u{1b}[2J",
            "\r",
            "\u{9b}2J",
        ];
        for word in wicked.iter().chain(&odd) {
            for name in [
                format!("rank-{word}.0.log"),
                format!("rank-0.{word}.log"),
                format!("rank-{word}.0.pid"),
                format!("rank-{word}.0.rc"),
                format!("{word}.log"),
                format!("rank-1.0.log{word}"),
                format!("node{word}.log"),
                format!("rank-0{word}.0.rc.new"),
            ] {
                if std::fs::write(self.out_file(name.as_bytes()), "text\n").is_err() {
                    assert!(name.contains('/'), "{name:?}");
                }
            }
        }
        for name in [
            &b"rank-\xff\xe4.0.log"[..],
            b"rank-1.0.\xc3.log",
            b"rank-9999999999.0.log",
            b"rank-00.0.log",
            b"rank-1.1.1.log",
            b"rank-.0.log",
        ] {
            std::fs::write(self.out_file(name), "text\n").expect("written");
        }
    }

    fn plant_links_and_pipes(&self) {
        let secret = self.path("home/secret");
        for name in ["rank-10.0.log", "rank-10.0.pid", "rank-10.0.rc", "rank-11.0.rc", "oom", "times", "rank-12.0.log"] {
            symlink(&secret, self.out_file(name.as_bytes())).expect("linked");
        }
        symlink("../../home", self.out_file(b"rank-13.0.log")).expect("linked");
        symlink("x\n-rw-r--r-- 1 0 0 99 Jan  1 00:00 forged", self.out_file(b"rank-14.0.log")).expect("linked");
        for name in ["rank-20.0.log", "rank-20.0.pid", "rank-21.0.rc"] {
            let made = Command::new("mkfifo").arg(self.out_file(name.as_bytes())).status().expect("mkfifo");
            assert!(made.success());
        }
        std::fs::create_dir_all(self.out_file(b"rank-22.0.log").join("deep")).expect("made");
        symlink(&secret, self.out_file(b"rank-22.0.log").join("deep/link")).expect("linked");
    }
}

fn action_script(action: &Action) -> RemoteCommand {
    let Execution::Script(command) = action.execution() else { panic!("a script") };
    command
}

#[test]
fn planted_names_and_links_do_not_harm_the_host() {
    for sh in available_shells() {
        let host = TestHost::new();
        host.plant_hostile_files();
        let site = host.host_context();
        let name = sh.join(" ");
        // The facts of the host, including everything about the run.
        let output = host.run_script(&sh, &facts_command(&site, &FactsRequest::default()).script, b"");
        host.assert_unharmed(&format!("{name}: facts"));
        let output = String::from_utf8(output).expect("text");
        assert!(!output.contains(SECRET) && !output.contains('\u{1b}') && !output.contains("forged"), "{name}: {output}");
        let read = HostFacts::parse(&output);
        assert_eq!(read.current_run.as_deref(), Some(RUN_ID), "{name}: {output}");
        let ended: Vec<u32> = read.ranks.iter().filter(|(_, _, exit)| exit.is_some()).map(|(rank, ..)| *rank).collect();
        assert!(read.ranks.iter().any(|(rank, life, _)| (*rank, *life) == (0, 0)) && ended.contains(&0), "{name}: {:?}", read.ranks);
        assert!(!read.ranks.iter().any(|(rank, ..)| (10..30).contains(rank)), "{name}: {:?}", read.ranks);
        assert!(read.run_record.as_ref().is_some_and(Result::is_err));
        // The logs.
        let (logs, frames) = host.fetch_logs(&sh);
        host.assert_unharmed(&format!("{name}: follow"));
        let text = |rank| logs.get(&LogFile::Rank { rank, restart: 0 }).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert_eq!(text(0).as_deref(), Some("fine\n"), "{name}");
        assert_eq!(logs.get(&LogFile::Launcher).map(Vec::as_slice), Some(&b"the launcher\n"[..]), "{name}");
        assert_eq!(text(35).as_deref(), Some("log 35\n"), "{name}");
        assert!((10..30).all(|rank| text(rank).is_none()), "{name}: {:?}", logs.keys());
        assert!(logs.values().all(|bytes| !String::from_utf8_lossy(bytes).contains(SECRET)), "{name}");
        assert_eq!(frames.last(), Some(&LogFrame::Complete), "{name}");
        let odd = |kind: &str| frames.iter().any(|frame| matches!(frame, LogFrame::SuspiciousFile(word, _) if word == kind));
        assert!(odd("name") && odd("more"), "{name}: {frames:?}");
        assert!(
            frames.iter().all(|frame| !matches!(frame, LogFrame::SuspiciousFile(_, name) if name.chars().any(|c| !c.is_ascii_graphic()))),
            "{frames:?}"
        );
        // The postmortem, the removal and its verification.
        let output = host.run_script(&sh, &postmortem::postmortem_command(&site).script, b"");
        assert!(!String::from_utf8_lossy(&output).contains(SECRET), "{name}");
        host.assert_unharmed(&format!("{name}: postmortem"));
        assert_hostile_files_are_removed(host, &sh);
    }
}

/// Removes one run, then all runs, and verifies the removal.
fn assert_hostile_files_are_removed(host: TestHost, sh: &[String]) {
    let (site, name) = (host.host_context(), sh.join(" "));
    host.run_script(
        sh,
        &action_script(&Action::RemoveFiles(RemoveFiles { context: site.clone(), target: CleanupTarget::Run })).script,
        b"",
    );
    host.assert_unharmed(&format!("{name}: clean a run"));
    let left: Vec<_> = std::fs::read_dir(host.path("n/h.out")).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
    assert!(left.is_empty(), "{name}: {left:?}");
    let again = TestHost { dir: host.dir };
    for dir in ["n/h.out", "n/h.private"] {
        std::fs::create_dir_all(again.path(dir)).expect("made");
    }
    again.plant_hostile_files();
    let output = again.run_script(
        sh,
        &action_script(&Action::RemoveFiles(RemoveFiles { context: site.clone(), target: CleanupTarget::Everything })).script,
        b"",
    );
    assert!(String::from_utf8_lossy(&output).starts_with("unknown "), "{name}: {}", String::from_utf8_lossy(&output));
    again.assert_unharmed(&format!("{name}: clean all"));
    let output = again.run_script(
        sh,
        &action_script(&Action::VerifyRemoved(VerifyRemoved { context: site, run_ids: vec![RUN_ID.to_owned()] })).script,
        b"",
    );
    assert_eq!(String::from_utf8_lossy(&output), "looked\n", "{name}");
}

/// Replacing a file between check and open gains nothing: the script detects the link after opening.
#[test]
fn log_replaced_by_link_is_not_read() {
    for sh in available_shells() {
        let host = TestHost::new();
        host.write_out_file("rank-0.0.log", "x");
        let reader = include_str!("../assets/read.sh");
        let link = host.out_file(b"rank-0.0.log");
        std::fs::remove_file(&link).and_then(|()| symlink(host.path("home/secret"), &link)).expect("linked");
        // The state after a check that found a regular file.
        let script = format!(
            "{reader}\ncd -P -- '{0}'\nbytes '{RUN_ID}.rank-0.0.log' \"$(pwd -P)\" 1 100\nfirst_lines \"$(pwd -P)\" '{RUN_ID}.rank-0.0.log'",
            host.path("n/h.out").display()
        );
        assert_eq!(String::from_utf8_lossy(&host.run_script(&sh, &script, b"")), "", "{sh:?}");
    }
}
