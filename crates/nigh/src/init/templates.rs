//! The templates of `nigh init`, which are part of the program.

use clap::ValueEnum;

/// A template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Template {
    /// A Python function
    Python,
    /// A Python function that is called for each new object of a bucket
    #[value(name = "python-s3")]
    PythonS3,
    /// A JavaScript function on this machine's Node.js
    Node,
    /// A Go function
    Go,
    /// A Rust function
    Rust,
    /// A state machine and the Python function of its steps
    Workflow,
    /// A Python function that answers HTTP requests at a URL
    Http,
}

/// A file of a template.
pub(super) struct TemplateFile {
    /// Its name in the folder.
    pub(super) name: &'static str,
    /// Its text.
    pub(super) text: &'static str,
}

/// The files of the template in a folder of `templates/`. A name behind `as` is that of the written file.
macro_rules! files {
    ($folder:literal: $($name:literal $(as $written:literal)?),* $(,)?) => {
        &[$(files!(@one $folder, $name $(, $written)?)),*]
    };
    (@one $folder:literal, $name:literal) => { files!(@one $folder, $name, $name) };
    (@one $folder:literal, $name:literal, $written:literal) => {
        TemplateFile {
            name: $written,
            text: include_str!(concat!("../../templates/", $folder, "/", $name)),
        }
    };
}

const PYTHON: &[TemplateFile] = files!("python": "README.md", "event.json", "main.py", "nigh.toml", "test_main.py");
const PYTHON_S3: &[TemplateFile] =
    files!("python-s3": "README.md", "event.json", "main.py", "nigh.toml", "test_main.py");
const NODE: &[TemplateFile] = files!("node": "README.md", "event.json", "index.mjs", "index.test.mjs", "nigh.toml");
const GO: &[TemplateFile] = files!(
    "go": "README.md", "event.json", "gitignore" as ".gitignore", "go.mod", "go.sum", "main.go", "main_test.go",
    "nigh.toml",
);
const RUST: &[TemplateFile] = files!(
    "rust": "Cargo.toml", "README.md", "event.json", "gitignore" as ".gitignore", "nigh.toml", "src/main.rs",
);
const WORKFLOW: &[TemplateFile] =
    files!("workflow": "README.md", "event.json", "main.py", "nigh.toml", "test_main.py", "workflow.json");
const HTTP: &[TemplateFile] = files!("http": "README.md", "event.json", "main.py", "nigh.toml", "test_main.py");

impl Template {
    /// Its files.
    pub(super) const fn files(self) -> &'static [TemplateFile] {
        match self {
            Self::Python => PYTHON,
            Self::PythonS3 => PYTHON_S3,
            Self::Node => NODE,
            Self::Go => GO,
            Self::Rust => RUST,
            Self::Workflow => WORKFLOW,
            Self::Http => HTTP,
        }
    }

    /// What must be run in the folder before the function can be deployed.
    pub(super) const fn first_step(self) -> Option<&'static str> {
        match self {
            Self::PythonS3 => Some("nigh objects mb nigh://inbox"),
            Self::Python | Self::Node | Self::Go | Self::Rust | Self::Workflow | Self::Http => None,
        }
    }
}
