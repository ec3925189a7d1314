"""`python -m d2l_mgpu.train`, see `command`."""

from d2l_mgpu.train.command import main

if __name__ == "__main__":
    main()
