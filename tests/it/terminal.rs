//! A pseudo-terminal for a program under test, with a model of its screen. Every wait is for a state of the screen or the program.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// The limit for any single wait.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(300);

/// The program's output.
struct TerminalOutput {
    screen: vt100::Parser,
    /// All bytes.
    raw: Vec<u8>,
    /// The end of the output was reached.
    is_eof: bool,
}

/// A program in a terminal.
pub(crate) struct PtyTerminal {
    pty: Option<Box<dyn MasterPty + Send>>,
    input: Option<Box<dyn std::io::Write + Send>>,
    child: Box<dyn Child + Send + Sync>,
    output: Arc<Mutex<TerminalOutput>>,
    /// Asks the reader to close the terminal.
    stop_reading: Arc<AtomicBool>,
    /// The terminal's settings before the program started.
    initial_termios: String,
}

fn non_zero_lines(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN)
}

fn lock_output(shown: &Mutex<TerminalOutput>) -> MutexGuard<'_, TerminalOutput> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pty_size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

impl PtyTerminal {
    /// Starts a program in a terminal of this many columns and rows.
    pub(crate) fn start(
        program: &Path,
        words: &[&str],
        home: &Path,
        variables: &BTreeMap<String, String>,
        (columns, rows): (u16, u16),
    ) -> PtyTerminal {
        let pair = native_pty_system().openpty(pty_size(columns, rows)).expect("a terminal");
        let mut command = CommandBuilder::new(program);
        command.args(words);
        command.env_clear();
        command.cwd(home);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for (name, value) in [("TERM", "xterm-256color"), ("LANG", "C.UTF-8")] {
            command.env(name, value);
        }
        for (name, value) in variables {
            command.env(name, value);
        }
        let before = format!("{:?}", pair.master.get_termios().expect("its settings"));
        let child = pair.slave.spawn_command(command).expect("it starts");
        drop(pair.slave);
        let shown = TerminalOutput {
            screen: vt100::Parser::new(non_zero_lines(rows), non_zero_lines(columns), 200),
            raw: Vec::new(),
            is_eof: false,
        };
        let (shown, hang_up) = (Arc::new(Mutex::new(shown)), Arc::new(AtomicBool::new(false)));
        let mut reader = pair.master.try_clone_reader().expect("a reader");
        let (sink, stop) = (Arc::clone(&shown), Arc::clone(&hang_up));
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            loop {
                let read = reader.read(&mut chunk).unwrap_or(0);
                let mut shown = lock_output(&sink);
                if read == 0 || stop.load(Ordering::SeqCst) {
                    shown.is_eof = true;
                    return;
                }
                shown.screen.process(&chunk[..read]);
                shown.raw.extend_from_slice(&chunk[..read]);
            }
        });
        let keys = pair.master.take_writer().expect("a writer");
        PtyTerminal { pty: Some(pair.master), input: Some(keys), child, output: shown, stop_reading: hang_up, initial_termios: before }
    }

    /// The screen as text.
    pub(crate) fn screen_text(&self) -> String {
        lock_output(&self.output).screen.screen().contents()
    }

    /// All bytes so far.
    pub(crate) fn raw_bytes(&self) -> Vec<u8> {
        lock_output(&self.output).raw.clone()
    }

    /// All bytes so far, as text.
    pub(crate) fn raw_text(&self) -> String {
        String::from_utf8_lossy(&self.raw_bytes()).into_owned()
    }

    /// Waits until the screen satisfies the condition.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + SCREEN_TIMEOUT;
        loop {
            let text = self.screen_text();
            if holds(&text) {
                return text;
            }
            let over = lock_output(&self.output).is_eof;
            assert!(!over || holds(&self.screen_text()), "it ended without {what}:\n{}", self.screen_text());
            assert!(Instant::now() < end, "never {what}; the screen is\n{text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the screen contains the text.
    #[track_caller]
    pub(crate) fn wait_for_text(&self, wanted: &str) -> String {
        self.wait_until(&format!("{wanted:?}"), |text| text.contains(wanted))
    }

    /// Waits until the screen no longer contains the text.
    #[track_caller]
    pub(crate) fn wait_for_no_text(&self, unwanted: &str) -> String {
        self.wait_until(&format!("without {unwanted:?}"), |text| !text.contains(unwanted))
    }

    /// Types keys.
    pub(crate) fn press(&mut self, keys: &str) {
        let writer = self.input.as_mut().expect("the terminal is there");
        writer.write_all(keys.as_bytes()).expect("typed");
        writer.flush().expect("typed");
    }

    /// Resizes the terminal; 0 by 0 is a terminal that does not know its size.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        lock_output(&self.output).screen.screen_mut().set_size(non_zero_lines(rows.max(1)), non_zero_lines(columns.max(1)));
        self.pty.as_ref().expect("the terminal is there").resize(pty_size(columns, rows)).expect("resized");
    }

    /// Sends the program a signal by name.
    pub(crate) fn send_signal(&self, name: &str) {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = match name {
            "TERM" => Signal::TERM,
            "HUP" => Signal::HUP,
            "STOP" => Signal::STOP,
            "CONT" => Signal::CONT,
            other => panic!("{other}?"),
        };
        kill_process(Pid::from_raw(self.pid()).expect("a pid"), signal).expect("signalled");
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.process_id().and_then(|id| i32::try_from(id).ok()).expect("it runs")
    }

    /// Closes the terminal like a closed window: the hang-up is all that the program notices.
    #[track_caller]
    pub(crate) fn hang_up(&mut self) {
        // The reader holds the terminal open too, and closes it after the next byte, which a key provokes.
        self.stop_reading.store(true, Ordering::SeqCst);
        self.press(" ");
        self.wait_until("the reader lets go", |_| lock_output(&self.output).is_eof);
        // The library writes an end-of-input key when it is dropped, which a shell obeys: this writer does not.
        let pty = self.pty.take().expect("the terminal is there");
        let name = pty.tty_name().expect("it has a name");
        let open = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let side = rustix::fs::open(&name, open, rustix::fs::Mode::empty()).expect("it opens");
        let mut settings = rustix::termios::tcgetattr(&side).expect("its settings");
        settings.special_codes[rustix::termios::SpecialCodeIndex::VEOF] = 0;
        rustix::termios::tcsetattr(&side, rustix::termios::OptionalActions::Now, &settings).expect("set");
        drop((side, self.input.take(), pty));
    }

    /// Waits until the program ends; returns its exit code.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self) -> u32 {
        let end = Instant::now() + SCREEN_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                // Its last output may still be in the terminal's buffer.
                while self.pty.is_some() && !lock_output(&self.output).is_eof {
                    assert!(Instant::now() < end, "the last output is missing");
                    std::thread::sleep(Duration::from_millis(10));
                }
                return status.exit_code();
            }
            assert!(Instant::now() < end, "it does not end; the screen is\n{}", self.screen_text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The terminal is restored: its settings, the normal screen, cursor, mouse, paste and focus.
    #[track_caller]
    pub(crate) fn assert_restored(&self) {
        let now = format!("{:?}", self.pty.as_ref().expect("the terminal is there").get_termios().expect("its settings"));
        assert_eq!(now, self.initial_termios, "the terminal's settings");
        let shown = lock_output(&self.output);
        let screen = shown.screen.screen();
        assert!(!screen.alternate_screen(), "the alternate screen was left");
        assert!(!screen.hide_cursor(), "the cursor is shown");
        assert!(!screen.bracketed_paste(), "paste is plain");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None, "the mouse is the terminal's");
        let raw = String::from_utf8_lossy(&shown.raw);
        let last = |on: &str, off: &str| raw.rfind(on) <= raw.rfind(off);
        assert!(last("\x1b[?1004h", "\x1b[?1004l"), "focus reports are off");
        assert!(last("\x1b[?2026h", "\x1b[?2026l"), "no frame is left open");
    }
}

impl Drop for PtyTerminal {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.child.kill().ok();
        }
    }
}
