"""What is compared in public: boards, papers' figures, studies, and how fast the simulator is."""
