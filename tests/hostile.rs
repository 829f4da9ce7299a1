//! What a rank plants where it can write, against every script that reads there, in every shell that can be a host's `/bin/sh`.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    reason = "the proof is real shells with real files, driven by helpers of a test"
)]

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use orchestrate::plan::action::remove::{Clean, Cleaned, Verify};
use orchestrate::plan::action::{Action, Do};
use orchestrate::plan::facts::{self, HostFacts, Wanted};
use orchestrate::plan::follow::{self, Frame, Purpose, Reader};
use orchestrate::plan::site::Site;
use orchestrate::plan::{aftermath, words::LogFile};
use orchestrate::shell;

const RUN: &str = "20261122-101500-ab12";
const SECRET: &str = "the ssh user's own words";

/// What the shells of hosts are: the words that run `sh -c`.
fn shells() -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let all = [words(&["/bin/sh"]), words(&["dash"]), words(&["bash", "--posix"]), words(&["busybox", "sh"])];
    let there = |shell: &Vec<String>| {
        Command::new(&shell[0]).args(&shell[1..]).args(["-c", "exit 0"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    all.into_iter().filter(there).collect()
}

/// A host's directories, and beside them what must not change.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Host {
        let host = Host { dir: tempfile::tempdir().expect("a folder") };
        for dir in ["n/h.private", "n/h.out", "home"] {
            std::fs::create_dir_all(host.at(dir)).expect("made");
        }
        std::fs::create_dir_all(host.at(&format!("n/h.in/{RUN}"))).expect("made");
        std::fs::write(host.at("home/secret"), format!("{SECRET}\n")).expect("written");
        std::fs::write(host.at("n/h.private/current"), format!("{RUN}\n")).expect("written");
        std::fs::write(host.at("n/h.in/current"), format!("{RUN}\n")).expect("written");
        std::fs::write(host.at(&format!("n/h.private/{RUN}.json")), "{}\n").expect("written");
        host
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path in the open directory, its name after the run's id.
    fn out(&self, name: &[u8]) -> PathBuf {
        let name = [RUN.as_bytes(), b".", name].concat();
        self.at("n/h.out").join(std::ffi::OsStr::from_bytes(&name))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.out(name.as_bytes()), text).expect("written");
    }

    fn site(&self) -> Site {
        Site {
            name: "n".to_owned(),
            host: "h".to_owned(),
            run: RUN.to_owned(),
            base: self.dir.path().to_str().expect("text").to_owned(),
            sudo: false,
            engine: None,
            contained: false,
            token: None,
            old: false,
            log_max: 0,
            ranks: 0,
        }
    }

    /// What a script prints; it must end by itself.
    fn run(&self, sh: &[String], script: &str, input: &[u8]) -> Vec<u8> {
        // From a file: a shell that reads its script from a pipe may take what follows it, too.
        let (file, words) = (self.at("script"), self.at("input"));
        std::fs::write(&file, script).and_then(|()| std::fs::write(&words, input)).expect("written");
        let out = Command::new(&sh[0])
            .args(&sh[1..])
            .arg(&file)
            .current_dir(self.at("home"))
            .env("HOME", self.at("home"))
            .stdin(std::fs::File::open(&words).expect("its input"))
            .stderr(Stdio::null())
            .stdout(Stdio::piped())
            .output()
            .expect("a shell");
        out.stdout
    }

    fn fetch(&self, sh: &[String]) -> (BTreeMap<LogFile, Vec<u8>>, Vec<Frame>) {
        // Every acknowledgement that could be wanted.
        let acks: String = (1..2000).map(|_| "1000000000 1000000\n").collect();
        let command = follow::command(&self.site(), &[], 1, Purpose::Fetch, true);
        let mut reader = Reader::default();
        reader.push(&self.run(sh, &command.script, acks.as_bytes()));
        let (mut logs, mut frames) = (BTreeMap::<LogFile, Vec<u8>>::new(), Vec::new());
        while let Some(frame) = reader.read().expect("in step") {
            match frame {
                Frame::Log { file, bytes, .. } => logs.entry(file).or_default().extend_from_slice(&bytes),
                other => frames.push(other),
            }
        }
        (logs, frames)
    }

    /// Nothing was run, and nothing of the ssh user's has changed or is gone.
    fn unharmed(&self, after: &str) {
        let names: Vec<_> = std::fs::read_dir(self.at("home")).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
        assert_eq!(names, ["secret"], "{after}");
        assert_eq!(std::fs::read_to_string(self.at("home/secret")).expect("there"), format!("{SECRET}\n"), "{after}");
    }

    /// Some two hundred names that a shell, a parser or a terminal could stumble over, and links, pipes and directories under good names.
    fn plant(&self) {
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
                if std::fs::write(self.out(name.as_bytes()), "text\n").is_err() {
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
            std::fs::write(self.out(name), "text\n").expect("written");
        }
        let secret = self.at("home/secret");
        for name in ["rank-10.0.log", "rank-10.0.pid", "rank-10.0.rc", "rank-11.0.rc", "oom", "times", "rank-12.0.log"] {
            symlink(&secret, self.out(name.as_bytes())).expect("linked");
        }
        symlink("../../home", self.out(b"rank-13.0.log")).expect("linked");
        symlink("x\n-rw-r--r-- 1 0 0 99 Jan  1 00:00 forged", self.out(b"rank-14.0.log")).expect("linked");
        for name in ["rank-20.0.log", "rank-20.0.pid", "rank-21.0.rc"] {
            let made = Command::new("mkfifo").arg(self.out(name.as_bytes())).status().expect("mkfifo");
            assert!(made.success());
        }
        std::fs::create_dir_all(self.out(b"rank-22.0.log").join("deep")).expect("made");
        symlink(&secret, self.out(b"rank-22.0.log").join("deep/link")).expect("linked");
        // Good names with bad words.
        for (rank, text) in
            [(30, "a[$(touch X)] 5 5 -"), (31, "$(touch X)"), (32, "-1 -1 -1 -"), (33, "1\n2\n"), (34, ""), (35, "\u{1b}[2J 1 1")]
        {
            self.write(&format!("rank-{rank}.0.pid"), text);
            self.write(&format!("rank-{rank}.0.rc"), text);
            self.write(&format!("rank-{rank}.0.log"), &format!("log {rank}\n"));
            self.write(&format!("rank-{rank}.0.end"), "");
        }
        // And a rank as it should be.
        self.write("rank-0.0.pid", "7 99 1795251815.5 -\n");
        self.write("rank-0.0.log", "fine\n");
        self.write("rank-0.0.rc", "3 1795251820.5\n");
        self.write("rank-0.0.end", "");
        self.write("node.pid", "5 98 1795251815.1 -\n");
        self.write("node.log", "the launcher\n");
        self.write("node.rc", "1 1795251821.0\n");
        self.write("node.end", "");
    }
}

fn script(action: &Action) -> shell::Command {
    let Do::Script(command) = action.command() else { panic!("a script") };
    command
}

#[test]
fn planted_names_links_and_words_do_nothing_to_the_host() {
    for sh in shells() {
        let host = Host::new();
        host.plant();
        let site = host.site();
        let name = sh.join(" ");
        // What is on the host, with all that it tells of the run.
        let told = host.run(&sh, &facts::command(&site, &Wanted::default()).script, b"");
        host.unharmed(&format!("{name}: facts"));
        let told = String::from_utf8(told).expect("text");
        assert!(!told.contains(SECRET) && !told.contains('\u{1b}') && !told.contains("forged"), "{name}: {told}");
        let read = HostFacts::read(&told);
        assert_eq!(read.current.as_deref(), Some(RUN), "{name}: {told}");
        let ended: Vec<u32> = read.ranks.iter().filter(|(_, _, exit)| exit.is_some()).map(|(rank, ..)| *rank).collect();
        assert!(read.ranks.iter().any(|(rank, life, _)| (*rank, *life) == (0, 0)) && ended.contains(&0), "{name}: {:?}", read.ranks);
        assert!(!read.ranks.iter().any(|(rank, ..)| (10..30).contains(rank)), "{name}: {:?}", read.ranks);
        assert!(read.run_file.as_ref().is_some_and(Result::is_err));
        // The logs.
        let (logs, frames) = host.fetch(&sh);
        host.unharmed(&format!("{name}: follow"));
        let text = |rank| logs.get(&LogFile::Rank { rank, restart: 0 }).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert_eq!(text(0).as_deref(), Some("fine\n"), "{name}");
        assert_eq!(logs.get(&LogFile::Node).map(Vec::as_slice), Some(&b"the launcher\n"[..]), "{name}");
        assert_eq!(text(35).as_deref(), Some("log 35\n"), "{name}");
        assert!((10..30).all(|rank| text(rank).is_none()), "{name}: {:?}", logs.keys());
        assert!(logs.values().all(|bytes| !String::from_utf8_lossy(bytes).contains(SECRET)), "{name}");
        assert_eq!(frames.last(), Some(&Frame::Complete), "{name}");
        let odd = |kind: &str| frames.iter().any(|frame| matches!(frame, Frame::Odd(word, _) if word == kind));
        assert!(odd("name") && odd("more"), "{name}: {frames:?}");
        assert!(
            frames.iter().all(|frame| !matches!(frame, Frame::Odd(_, name) if name.chars().any(|c| !c.is_ascii_graphic()))),
            "{frames:?}"
        );
        // What is asked after a failure, the removal and the proof.
        let told = host.run(&sh, &aftermath::command(&site).script, b"");
        assert!(!String::from_utf8_lossy(&told).contains(SECRET), "{name}");
        host.unharmed(&format!("{name}: aftermath"));
        host.run(&sh, &script(&Action::Clean(Clean { site: site.clone(), what: Cleaned::Run(RUN.to_owned()) })).script, b"");
        host.unharmed(&format!("{name}: clean a run"));
        let left: Vec<_> = std::fs::read_dir(host.at("n/h.out")).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
        assert!(left.is_empty(), "{name}: {left:?}");
        let again = Host { dir: host.dir };
        for dir in ["n/h.out", "n/h.private"] {
            std::fs::create_dir_all(again.at(dir)).expect("made");
        }
        again.plant();
        let told = again.run(&sh, &script(&Action::Clean(Clean { site: site.clone(), what: Cleaned::Everything })).script, b"");
        assert!(String::from_utf8_lossy(&told).starts_with("unknown "), "{name}: {}", String::from_utf8_lossy(&told));
        again.unharmed(&format!("{name}: clean all"));
        let told = again.run(&sh, &script(&Action::Verify(Verify { site, runs: vec![RUN.to_owned()] })).script, b"");
        assert_eq!(String::from_utf8_lossy(&told), "looked\n", "{name}");
    }
}

/// Whoever changes a file between the look and the opening gets nothing by it: the link is seen after the opening.
#[test]
fn a_link_that_takes_a_logs_place_is_not_read() {
    for sh in shells() {
        let host = Host::new();
        host.write("rank-0.0.log", "x");
        let reader = include_str!("../assets/read.sh");
        let link = host.out(b"rank-0.0.log");
        std::fs::remove_file(&link).and_then(|()| symlink(host.at("home/secret"), &link)).expect("linked");
        // As after a look that found a regular file.
        let script = format!(
            "{reader}\ncd -P -- '{0}'\nbytes '{RUN}.rank-0.0.log' \"$(pwd -P)\" 1 100\nfirst_lines \"$(pwd -P)\" '{RUN}.rank-0.0.log'",
            host.at("n/h.out").display()
        );
        assert_eq!(String::from_utf8_lossy(&host.run(&sh, &script, b"")), "", "{sh:?}");
    }
}

/// An old record could be a rank's: it lies where ranks write.
#[test]
fn a_run_of_an_earlier_version_is_found_and_its_directory_goes() {
    let sh = vec!["/bin/sh".to_owned()];
    let host = Host::new();
    std::fs::remove_dir_all(host.at("n")).expect("removed");
    let old = host.at(&format!("n/h/{RUN}"));
    std::fs::create_dir_all(&old).expect("made");
    std::fs::write(host.at("n/h/current"), format!("{RUN}\n")).expect("written");
    std::fs::write(old.join("node.pid"), "5 98 1795251815.1 -\n").expect("written");
    std::fs::write(old.join("rank-1.0.log"), "old words\n").expect("written");
    std::fs::write(old.join("run.json"), "{}\n").expect("written");
    let site = Site { old: true, ..host.site() };
    let read =
        |host: &Host| HostFacts::read(&String::from_utf8_lossy(&host.run(&sh, &facts::command(&site, &Wanted::default()).script, b"")));
    let facts = read(&host);
    assert_eq!((facts.old, facts.current.as_deref(), facts.logs.len()), (true, Some(RUN), 1));
    let command = follow::command(&site, &[], 1, Purpose::Fetch, true);
    let said = host.run(&sh, &command.script, "1000 1000\n".repeat(100).as_bytes());
    assert!(String::from_utf8_lossy(&said).contains("F rank-1.0 0 10\nold words\n"), "{}", String::from_utf8_lossy(&said));
    host.run(&sh, &script(&Action::Clean(Clean { site: site.clone(), what: Cleaned::Everything })).script, b"");
    assert!(!Path::new(&host.at("n/h")).exists());
    // Its current could be anything.
    for current in ["../../home", "$(touch X)", "..", "a\nb", ""] {
        std::fs::create_dir_all(&old).expect("made");
        std::fs::write(host.at("n/h/current"), current).expect("written");
        assert_eq!(read(&host).current, None, "{current:?}");
        host.unharmed(current);
    }
}
